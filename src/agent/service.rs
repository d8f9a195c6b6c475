//! The messages to systemd about an agent, if it asked for them (sd_notify(3)).

use std::time::{Duration, Instant};

use sd_notify::NotifyState::{ExtendTimeoutUsec, Ready, Status, Stopping, Watchdog};
use sd_notify::{NotifyState, notify, watchdog_enabled};

/// The time to detach, beyond the time that an agent takes to drain.
const TO_DETACH: Duration = Duration::from_secs(30);

/// The service that this process is. Silent if nobody listens.
pub(crate) struct Service {
    /// Between two signs of life; systemd ends a service that gives none for twice as long.
    interval: Option<Duration>,
    last: Instant,
}

impl Service {
    /// The service is ready.
    pub(crate) fn ready() -> Self {
        tell(&[Ready, Status("Serving")]);
        let interval = watchdog_enabled().map(|timeout| timeout / 2);
        Self { interval, last: Instant::now() }
    }

    /// When the next sign of life is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.interval.map(|interval| self.last + interval)
    }

    /// Gives a sign of life if one is due.
    pub(crate) fn beat(&mut self, groups: usize) {
        let now = Instant::now();
        if self.due().is_some_and(|due| due <= now) {
            self.last = now;
            tell(&[Watchdog, Status(&format!("Groups: {groups}"))]);
        }
    }

    /// The service stops, within a time that it may take.
    pub(crate) fn stopping(&self, groups: usize, within: Duration) {
        let time = u32::try_from((within + TO_DETACH).as_micros()).unwrap_or(u32::MAX);
        let status = format!("Draining; groups: {groups}");
        tell(&[Stopping, ExtendTimeoutUsec(time), Status(&status)]);
    }
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = notify(states) {
        log::warn!("systemd was not told how the agent is: {error}");
    }
}
