//! Log lines: to standard error, each with host and rank, as `FOLDBACK_LOG` says.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::config::settings::wrong;

const NAME: &str = "FOLDBACK_LOG";
const DEFAULT: &str = "warn";
const UNKNOWN: usize = usize::MAX;

static RANK: AtomicUsize = AtomicUsize::new(UNKNOWN);

/// Begins to log, unless the program does so already by the same crate.
pub fn init() {
    let wanted = std::env::var(NAME).ok().filter(|text| !text.is_empty());
    let sound = wanted.as_deref().filter(|text| env_filter::Builder::new().try_parse(text).is_ok());
    let host = nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned());
    let host = host.unwrap_or_else(|_| "?".into());
    let logger = env_logger::Builder::new()
        .parse_filters(sound.unwrap_or(DEFAULT))
        .format(move |line, record| {
            let (time, level, from) = (line.timestamp(), record.level(), record.target());
            write!(line, "[{time} {level:<5} {host} ")?;
            match RANK.load(Ordering::Relaxed) {
                UNKNOWN => write!(line, "process {}", std::process::id())?,
                rank => write!(line, "rank {rank}")?,
            }
            writeln!(line, " {from}] {}", record.args())
        })
        .try_init();
    if let (Some(text), None, Ok(())) = (&wanted, sound, logger) {
        log::warn!("{}", wrong(NAME, text));
    }
}

/// From now on lines bear the rank in MPI_COMM_WORLD.
pub fn set_rank(rank: usize) {
    RANK.store(rank, Ordering::Relaxed);
}
