//! Log lines: to standard error, each with host and rank, as `FOLDBACK_LOG` says.
//!
//! systemd's journal adds the host, the process and the time itself. It takes the priority from the line
//! (sd-daemon(3)).

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};

use log::Level;

use crate::config::settings::{lookup, wrong};

const NAME: &str = "FOLDBACK_LOG";
const DEFAULT: &str = "warn";
const UNKNOWN: usize = usize::MAX;

static RANK: AtomicUsize = AtomicUsize::new(UNKNOWN);

/// Begins to log, unless the program does so already by the same crate.
pub fn init() {
    let wanted = lookup(NAME);
    let text = wanted.as_ref().map(|value| &*value.text);
    let sound = text.filter(|text| env_filter::Builder::new().try_parse(text).is_ok());
    let host = nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned());
    let host = host.unwrap_or_else(|_| "?".into());
    let to_journal = is_journal(&std::env::var("JOURNAL_STREAM").unwrap_or_default());
    let logger = env_logger::Builder::new()
        .parse_filters(sound.unwrap_or(DEFAULT))
        .format(move |line, record| {
            if to_journal {
                return writeln!(line, "{}", for_journal(record));
            }
            let (time, level, from) = (line.timestamp(), record.level(), record.target());
            write!(line, "[{time} {level:<5} {host} ")?;
            match RANK.load(Ordering::Relaxed) {
                UNKNOWN => write!(line, "process {}", std::process::id())?,
                rank => write!(line, "rank {rank}")?,
            }
            writeln!(line, " {from}] {}", record.args())
        })
        .try_init();
    if let (Some(value), None, Ok(())) = (&wanted, sound, logger) {
        log::warn!("{}", wrong(NAME, value));
    }
}

/// Whether standard error is the stream to the journal that the variable `JOURNAL_STREAM` names: its device and inode
/// (systemd.exec(5)).
fn is_journal(stream: &str) -> bool {
    let file = nix::sys::stat::fstat(std::io::stderr());
    file.is_ok_and(|file| stream == format!("{}:{}", file.st_dev, file.st_ino))
}

/// A line for the journal: a priority of syslog, and no line break, after which another line would begin.
fn for_journal(record: &log::Record<'_>) -> String {
    let priority = match record.level() {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    };
    let rank = match RANK.load(Ordering::Relaxed) {
        UNKNOWN => String::new(),
        rank => format!("rank {rank} "),
    };
    let text = record.args().to_string().replace('\n', " ");
    format!("<{priority}>{rank}{}: {text}", record.target())
}

/// From now on lines bear the rank in MPI_COMM_WORLD.
pub fn set_rank(rank: usize) {
    RANK.store(rank, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_gets_one_line_with_a_priority() {
        let of = |level, text: &str| {
            let mut record = log::Record::builder();
            for_journal(
                &record.level(level).target("foldback::agent").args(format_args!("{text}")).build(),
            )
        };
        assert_eq!(of(Level::Warn, "no room"), "<4>foldback::agent: no room");
        assert_eq!(of(Level::Trace, "one\n<0>two"), "<7>foldback::agent: one <0>two");
    }

    #[test]
    fn only_the_journals_own_stream_is_the_journal() {
        let file = nix::sys::stat::fstat(std::io::stderr()).unwrap();
        assert!(is_journal(&format!("{}:{}", file.st_dev, file.st_ino)));
        assert!(!is_journal(&format!("{}:{}", file.st_dev, file.st_ino + 1)));
        assert!(!is_journal(""));
    }
}
