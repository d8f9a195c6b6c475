//! The options of an agent.

use std::num::NonZero;
use std::str::FromStr;
use std::time::Duration;

use crate::agent::error::{Error, ErrorKind, Result};
use crate::agent::hook::HookChoice;
use crate::bindings::{FB_MAX_GROUPS, FB_UDP_PORT};
use crate::config::Value;
use crate::config::settings::{self, Reader, SETTINGS, Setting};

/// Settings of an agent, embedded or not.
#[derive(Clone, Debug)]
pub struct Options {
    /// The hook that takes frames in. `FOLDBACK_HOOK`.
    pub hook: HookChoice,
    /// Attach to TC the old way (clsact) although the kernel has tcx. A test aid, so that the old
    /// way is tested on a new kernel. `FOLDBACK_TEST_TC=clsact`.
    pub force_clsact: bool,
    /// UDP port of all frames, the same on all hosts. `FOLDBACK_PORT`.
    pub port: u16,
    /// Answer [echoes](super::echo). `FOLDBACK_ECHO`.
    pub echo: bool,
    /// Count the CPU time of the programs for each group. `FOLDBACK_CPU_TIME`.
    pub cpu_time: bool,
    /// How long programs stay on an interface, and cells in stock, after the last group: attaching takes longer
    /// than anything else, and the next job may come soon.
    pub linger: Duration,
    /// Tell the work of groups' leaders. It takes a descriptor for each group, of which a rank may not have many.
    pub tells_work: bool,
    /// The limits for users.
    pub limits: Limits,
}

/// Bounds on what one user, and all of them, may take of an agent.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Groups of all users, at most `FB_MAX_GROUPS`.
    pub groups: u32,
    /// Groups of one user.
    pub groups_per_user: usize,
    /// Bytes of cells of one user: locked kernel memory.
    pub cell_bytes_per_user: u64,
    /// Connections of one user.
    pub connections_per_user: usize,
    /// Connections of all users.
    pub connections: usize,
    /// How long a connection without groups may be silent.
    pub idle: Duration,
}

impl Limits {
    /// Whether a user who has `own` of the `all` taken things, of at most `most`, may have another. Nobody
    /// may have more than what is left, so that something is left for every newcomer (Choudhury and Hahne,
    /// "Dynamic queue length thresholds for shared-memory packet switches", 1998).
    pub(crate) fn leaves_a_share(own: usize, all: usize, most: usize) -> bool {
        own < most.saturating_sub(all)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            groups: FB_MAX_GROUPS,
            groups_per_user: 256,
            cell_bytes_per_user: 512 << 20,
            connections_per_user: 256,
            connections: 900,
            idle: Duration::from_secs(60),
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            hook: HookChoice::Tc,
            force_clsact: false,
            port: FB_UDP_PORT as u16,
            echo: true,
            cpu_time: false,
            linger: Duration::ZERO,
            tells_work: false,
            limits: Limits::default(),
        }
    }
}

impl Options {
    /// The defaults, changed by environment and file.
    pub fn of_process() -> Result<Self> {
        let mut options = Self::default();
        for Setting { name, .. } in
            SETTINGS.iter().filter(|setting| setting.reader == Reader::Agent)
        {
            if let Some(value) = value(name)? {
                options.set(name, &value)?;
            }
        }
        options.force_clsact = std::env::var("FOLDBACK_TEST_TC").is_ok_and(|tc| tc == "clsact");
        Ok(options)
    }

    /// Takes a value, if the setting is an agent's.
    pub fn set(&mut self, name: &str, value: &Value) -> Result<()> {
        match name {
            "FOLDBACK_HOOK" => self.hook = parse(name, value)?,
            "FOLDBACK_PORT" => self.port = parse::<NonZero<u16>>(name, value)?.get(),
            "FOLDBACK_ECHO" => self.echo = parse::<Switch>(name, value)? == Switch::On,
            "FOLDBACK_CPU_TIME" => self.cpu_time = parse::<Switch>(name, value)? == Switch::On,
            _ => {}
        }
        Ok(())
    }
}

/// Something that is on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Switch {
    On,
    Off,
}

impl FromStr for Switch {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        match text {
            "on" => Ok(Self::On),
            "off" => Ok(Self::Off),
            _ => Err(()),
        }
    }
}

/// The value of a setting, if it has one.
pub(crate) fn value(name: &str) -> Result<Option<Value>> {
    settings::get(name).map_err(|why| Error::new(ErrorKind::Invalid, why))
}

pub(crate) fn parse<T: FromStr>(name: &str, value: &Value) -> Result<T> {
    let wrong = |_| Error::new(ErrorKind::Invalid, settings::wrong(name, value));
    value.text.parse().map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_of_an_agent_is_taken_or_refused() {
        for setting in SETTINGS.iter().filter(|setting| setting.reader == Reader::Agent) {
            let mut options = Options::default();
            let error = options.set(setting.name, &"?".into()).unwrap_err().to_string();
            assert_eq!(error, format!("{}=?: {}", setting.name, setting.form));
        }
        let mut options = Options::default();
        options.set("FOLDBACK_PORT", &"7".into()).unwrap();
        options.set("FOLDBACK_HOOK", &"xdp".into()).unwrap();
        options.set("FOLDBACK_ECHO", &"off".into()).unwrap();
        assert_eq!((options.port, options.hook, options.echo), (7, HookChoice::Xdp, false));
    }

    #[test]
    fn something_is_left_for_every_newcomer() {
        let (most, mut taken) = (900, Vec::new());
        for _user in 0..100 {
            let (mut own, all) = (0, taken.iter().sum::<usize>());
            while Limits::leaves_a_share(own, all + own, most) {
                own += 1;
            }
            if all < most - 1 {
                assert!(own > 0, "{taken:?}");
            }
            taken.push(own);
        }
        assert_eq!(taken[..4], [450, 225, 113, 56]);
    }
}
