//! The settings of a process, read once: [`settings`] has their table, [`site`] the file that may have them.

pub(crate) mod file;
mod quantize;
pub mod settings;
pub mod site;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::bindings::FB_CHUNK_BYTES;
use crate::call::{COLLECTIVES, Collective, MAX_BYTES};
use crate::wire::Algorithm;
pub(crate) use quantize::Quantize;

/// Settings that must be alike on all ranks. They compare these when MPI starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shared {
    /// Largest message, in bytes, that is folded, for each of [`COLLECTIVES`]. If the way is
    /// measured, it counts only while nothing is known, unless `limited`.
    pub max_bytes: [usize; COLLECTIVES.len()],
    /// `FOLDBACK_MAX_BYTES` is given: nothing longer is folded, measured or not.
    pub limited: bool,
    /// The choice between the fold and MPI.
    pub policy: Policy,
    /// Eligible calls on a communicator after which its group is set up.
    pub setup_calls: u32,
    /// Cells of a group; `None`: as [`Shared::window_among`] says.
    pub window: Option<u32>,
    /// How folds to all go; `None`: as is best for the group.
    pub algorithm: Option<Algorithm>,
    /// The kind of sums of floating point.
    pub sum: Sum,
    /// How some of these are quantized.
    pub quantize: Option<Quantize>,
    /// The transport of frames.
    pub transport: TransportChoice,
    /// Frames to all members are sent as one, where all hear multicast.
    pub multicast: bool,
    /// Whether frames bear a code that takes the group's key.
    pub auth: bool,
    /// Rank 0 has a profile, or is to make one.
    pub profile: bool,
}

/// The value of a setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Value {
    /// Its text, as the user wrote it.
    pub text: String,
    /// The file and the line that have it; `None`: the environment.
    pub place: Option<String>,
}

impl Value {
    /// The file and the line, or the environment.
    pub fn origin(&self) -> &str {
        self.place.as_deref().unwrap_or("environment")
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{} ({place})", self.text),
            None => write!(f, "{}", self.text),
        }
    }
}

impl From<&str> for Value {
    /// As if the environment had it.
    fn from(text: &str) -> Self {
        Self { text: text.into(), place: None }
    }
}

/// Values that make up [`Shared`], by name, as ranks tell them each other.
pub(crate) type Given = BTreeMap<String, Value>;

/// Settings of one process.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// `FOLDBACK=off` clears it.
    pub enabled: bool,
    /// Settings that all ranks must agree on.
    pub shared: Shared,
    /// The values of shared settings that environment and file have.
    pub given: Given,
    /// The file for the statistics: `-` is standard output. `FOLDBACK_STATS`.
    pub stats: Option<String>,
    /// The report on standard error. `FOLDBACK_REPORT`.
    pub report: Report,
    /// The file that keeps what was measured, which rank 0 reads and writes. `FOLDBACK_PROFILE`.
    pub profile: Option<String>,
    /// How long the ranks may take to answer the roll call of MPI_Init. `FOLDBACK_SETUP_TIMEOUT`, s.
    pub setup_timeout: Duration,
    /// How long the first frames may take to go round. `FOLDBACK_PROBE_TIMEOUT`, s.
    pub probe_timeout: Duration,
    /// The networks to use, the first preferred; none: all. `FOLDBACK_NET`.
    pub networks: Vec<Network>,
    /// Bytes that pairs of keys and values may take on a rank; `None`: by what is free. `FOLDBACK_PAIRS_MEMORY`.
    pub pairs_memory: Option<usize>,
    /// Combines pairs that come from other ranks. `FOLDBACK_PAIRS_BY`.
    pub pairs_by: Combiner,
}

/// Combines pairs of keys and values that come from other ranks, `FOLDBACK_PAIRS_BY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combiner {
    /// The process of their owner.
    Process,
    /// Its kernel.
    Kernel,
}

/// The choice between the fold and MPI, `FOLDBACK_ROUTE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// The way that was measured to be faster.
    Auto,
    /// The fold, for all calls within the limits.
    Fold,
    /// The real MPI, for everything.
    Mpi,
}

/// The kind of sums of floating point, `FOLDBACK_SUM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sum {
    /// Exact where that costs nothing: where all contributions meet in one place.
    Auto,
    /// Folded in the order of ranks, rounded at each step.
    RankOrder,
    /// The exact sum of all contributions, rounded once.
    Exact,
}

/// The transport of a group's frames, `FOLDBACK_TRANSPORT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransportChoice {
    /// The programs, if every host has them, or else ordinary sockets.
    Auto,
    /// The programs, or there is no group.
    Programs,
    /// Ordinary sockets: no agent is asked.
    Sockets,
}

/// The report on a job at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    Off,
    Line,
    /// All statistics, as tables.
    Full,
}

/// Longest message that is folded by sockets alone: beyond one frame MPI's TCP is faster
/// (docs/benchmarks.md, Without programs).
const MAX_BYTES_BY_SOCKETS: usize = FB_CHUNK_BYTES as usize;

/// Most members of a group to which more than the least number of cells is of no use.
const FEW_MEMBERS: usize = 4;

impl Shared {
    /// The longest message that may be folded in a group without programs, unless a limit is given.
    pub fn most_bytes_by_sockets(&self) -> usize {
        if self.limited { usize::MAX } else { MAX_BYTES_BY_SOCKETS }
    }

    /// Cells of a group of so many members. Between more of them each has fewer chunks of a message under way, so
    /// that long messages are faster with more cells (docs/benchmarks.md, The window).
    pub fn window_among(&self, members: usize) -> u32 {
        self.window.unwrap_or(if members <= FEW_MEMBERS { 1024 } else { 2048 })
    }

    /// The longest exact or quantized sum that may be folded. The limits of speed do not count, for MPI has nothing
    /// to compare it with.
    pub fn max_bytes_asked(&self, collective: Collective) -> usize {
        if self.limited { self.max_bytes[collective as usize] } else { usize::MAX }
    }
}

impl Config {
    /// The settings that were read, or the defaults if they made no sense.
    pub fn or_default(read: &Result<Self, String>) -> &Self {
        static DEFAULTS: LazyLock<Config> = LazyLock::new(Config::default);
        read.as_ref().unwrap_or_else(|_| &DEFAULTS)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            enabled: true,
            shared: Shared {
                max_bytes: MAX_BYTES,
                limited: false,
                policy: Policy::Auto,
                setup_calls: 300,
                window: None,
                algorithm: None,
                sum: Sum::Auto,
                quantize: None,
                transport: TransportChoice::Auto,
                multicast: true,
                auth: true,
                profile: false,
            },
            given: Given::new(),
            stats: None,
            profile: None,
            report: Report::Off,
            setup_timeout: Duration::from_secs(60),
            probe_timeout: Duration::from_secs(5),
            networks: vec![],
            pairs_memory: None,
            pairs_by: Combiner::Process,
        }
    }
}

impl Config {
    /// Whether the statistics, with the programs' counters, go anywhere.
    pub fn counts(&self) -> bool {
        self.stats.is_some() || self.report == Report::Full
    }

    /// The settings of this process, by environment and file.
    ///
    /// # Errors
    /// One line that says what is wrong with the file, or names a setting and what it may be.
    pub fn of_process() -> Result<Self, String> {
        site::site().wrong.clone().map_or_else(|| settings::read(settings::lookup), Err)
    }

    /// Whether ranks are to exchange their settings in MPI_Init, whatever else makes no sense: calls are to be folded,
    /// or sums exact, from the first one on.
    pub fn is_at_once() -> bool {
        let of =
            |setting| settings::read(|name| settings::lookup(name).filter(|_| name == setting));
        let is = |setting, is: fn(&Self) -> bool| of(setting).is_ok_and(|config| is(&config));
        is("FOLDBACK_SETUP_CALLS", |config| config.shared.setup_calls == 0)
            || is("FOLDBACK_SUM", |config| config.shared.sum == Sum::Exact)
    }
}

/// The variable by which this job asks its MPI to survive the end of a rank: Open MPI's, which its
/// `mpirun --with-ft ulfm` sets, or MPICH's. Nobody who waits for a frame would learn of such an end.
pub(crate) fn fault_tolerance(variable: impl Fn(&str) -> Option<String>) -> Option<&'static str> {
    let on = |text: String| matches!(text.to_lowercase().as_str(), "1" | "true" | "yes" | "on");
    ["OMPI_MCA_mpi_ft_enable", "MPIR_CVAR_ENABLE_FT"]
        .into_iter()
        .find(|name| variable(name).is_some_and(on))
}

/// The tasks that a launcher announces to each one that it starts, whatever MPI makes of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    /// The variable that tells it.
    pub variable: &'static str,
    pub tasks: usize,
    /// This process is the first of them.
    pub is_first: bool,
}

/// Several tasks, of which this process is one, if its launcher announces such. The launcher is srun (for a step, not
/// a whole allocation), mpirun of Open MPI, flux, or one that speaks PMI, such as hydra.
pub(crate) fn announced(variable: impl Fn(&str) -> Option<String>) -> Option<Announced> {
    let number = |name| variable(name)?.parse::<usize>().ok();
    [
        ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
        ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
        ("PMI_SIZE", "PMI_RANK"),
        ("FLUX_JOB_SIZE", "FLUX_TASK_RANK"),
    ]
    .into_iter()
    .find_map(|(variable, rank)| {
        let tasks = number(variable).filter(|tasks| *tasks > 1)?;
        Some(Announced { variable, tasks, is_first: number(rank) == Some(0) })
    })
}

/// The job of this process, by the name that its batch system gives it: Slurm, PBS, LSF or Flux.
pub(crate) fn job() -> Option<String> {
    let variables = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID"];
    variables.into_iter().find_map(|name| std::env::var(name).ok().filter(|job| !job.is_empty()))
}

/// Limits as `FOLDBACK_MAX_BYTES` has them.
pub(crate) fn max_bytes(text: &str) -> Option<[usize; COLLECTIVES.len()]> {
    if let Ok(bytes) = text.parse() {
        return Some([bytes; COLLECTIVES.len()]);
    }
    let mut limits = MAX_BYTES;
    for part in text.split(',') {
        let (name, bytes) = part.split_once('=')?;
        let collective: Collective = name.trim().parse().ok()?;
        limits[collective as usize] = bytes.trim().parse().ok()?;
    }
    Some(limits)
}

/// An IPv4 network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Network {
    /// Any address in it.
    pub address: std::net::Ipv4Addr,
    /// Length of its prefix in bits.
    pub prefix: u8,
}

impl Network {
    /// The address with the bits of the host cleared.
    pub fn base(&self) -> u32 {
        let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
        u32::from(self.address) & mask
    }

    /// Whether `address` is in it.
    pub fn contains(&self, address: std::net::Ipv4Addr) -> bool {
        Self { address, prefix: self.prefix }.base() == self.base()
    }
}

impl FromStr for Network {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (address, prefix) = text.split_once('/').ok_or(())?;
        let (address, prefix) =
            (address.parse().map_err(|_| ())?, prefix.parse::<u8>().map_err(|_| ())?);
        if prefix > 32 { Err(()) } else { Ok(Self { address, prefix }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &'static str, value: &'static str) -> Result<Config, String> {
        settings::read(|asked| (asked == name).then(|| value.into()))
    }

    #[test]
    fn jobs_that_survive_a_rank_are_told_by_what_asks_for_it() {
        let asks = |value: &'static str| {
            fault_tolerance(|name| (name == "OMPI_MCA_mpi_ft_enable").then(|| value.to_owned()))
        };
        assert_eq!(asks("1"), Some("OMPI_MCA_mpi_ft_enable"));
        assert_eq!(asks("true"), Some("OMPI_MCA_mpi_ft_enable"));
        assert_eq!(asks("0"), None);
        assert_eq!(fault_tolerance(|_| None), None);
    }

    #[test]
    fn launchers_announce_several_tasks() {
        let of = |set: &[(&str, &str)]| {
            let value = |name: &str| set.iter().find(|(other, _)| *other == name);
            announced(|name| value(name).map(|(_, value)| (*value).to_owned()))
        };
        let some = |variable, tasks, is_first| Some(Announced { variable, tasks, is_first });
        let slurm = [("SLURM_NTASKS", "8"), ("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_PROCID", "0")];
        assert_eq!(of(&slurm), some("SLURM_STEP_NUM_TASKS", 4, true));
        assert_eq!(of(&[("PMI_SIZE", "2"), ("PMI_RANK", "1")]), some("PMI_SIZE", 2, false));
        assert_eq!(of(&[("PMI_SIZE", "1"), ("PMI_RANK", "0")]), None);
        assert_eq!(of(&[("SLURM_NTASKS", "8")]), None, "a script of an allocation");
    }

    #[test]
    fn nonsense_is_refused_in_one_line_that_names_the_variable() {
        for (name, value) in [
            ("FOLDBACK", "maybe"),
            ("FOLDBACK_MAX_BYTES", "lots"),
            ("FOLDBACK_MAX_BYTES", "gossip=4"),
            ("FOLDBACK_ALGORITHM", "tree"),
            ("FOLDBACK_ROUTE", "scenic"),
            ("FOLDBACK_SUM", "roughly"),
            ("FOLDBACK_REPORT", "loud"),
            ("FOLDBACK_WINDOW", "300"),
            ("FOLDBACK_WINDOW", "65536"),
            ("FOLDBACK_NET", "10.0.0.0"),
            ("FOLDBACK_NET", "10.0.0.0/33"),
            ("FOLDBACK_NET", "10.0.0.0/8,"),
            ("FOLDBACK_SETUP_TIMEOUT", "-1"),
            ("FOLDBACK_PROBE_TIMEOUT", "0"),
            ("FOLDBACK_TRANSPORT", "sink"),
            ("FOLDBACK_QUANTIZE", "int16,block=0"),
        ] {
            let error = read(name, value).unwrap_err();
            assert!(error.starts_with(&format!("{name}={value}: ")), "{error}");
            assert!(!error.contains('\n'));
        }
    }

    #[test]
    fn limits_are_for_all_collectives_or_for_some() {
        assert_eq!(
            read("FOLDBACK_MAX_BYTES", "7").unwrap().shared.max_bytes,
            [7; COLLECTIVES.len()]
        );
        let some = read("FOLDBACK_MAX_BYTES", "bcast=9").unwrap().shared.max_bytes;
        let mut want = MAX_BYTES;
        want["Bcast".parse::<Collective>().unwrap() as usize] = 9;
        assert_eq!(some, want);
    }

    #[test]
    fn networks_are_in_the_order_in_which_they_are_named() {
        let networks = read("FOLDBACK_NET", "10.1.0.0/16, 192.168.1.0/24").unwrap().networks;
        let [first, second] = ["10.1.0.0/16", "192.168.1.0/24"].map(|text| text.parse().unwrap());
        assert_eq!(networks, [first, second]);
        assert_eq!(Config::default().networks, []);
    }

    #[test]
    fn a_network_contains_its_hosts() {
        let network: Network = "10.1.2.3/24".parse().unwrap();
        assert!(network.contains("10.1.2.250".parse().unwrap()));
        assert!(!network.contains("10.1.3.1".parse().unwrap()));
        let all: Network = "0.0.0.0/0".parse().unwrap();
        assert!(all.contains("192.0.2.1".parse().unwrap()));
    }
}
