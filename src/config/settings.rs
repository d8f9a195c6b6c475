//! Every setting of foldback, once. Environment and file have them by the same names. The parser, the list of
//! `--help`, the tables of docs/using/environment.md and dist/foldback.conf are made of it.

use std::time::Duration;

use super::site::{self, CONF, Line, site};
use super::{
    Combiner, Config, Given, Policy, Quantize, Report, Sum, TransportChoice, Value, max_bytes,
};
use crate::bindings::FB_MAX_WINDOW;
use crate::wire::{Algorithm, LEAST_WINDOW};

/// The reader of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// The library, in each process. It must be alike on all ranks.
    AllRanks,
    /// The library, in each process.
    EachRank,
    /// An agent, and so also a privileged rank that embeds one.
    Agent,
    /// The command `foldback`, agent and lab included.
    Command,
}

/// Puts a value into the settings of a process; `None`: it makes no sense.
type Parse = fn(&mut Config, &str) -> Option<()>;

/// Something that users may set.
pub struct Setting {
    /// Its name, which begins with `FOLDBACK_`.
    pub name: &'static str,
    /// The values that it may have, in a few words, for an error.
    pub form: &'static str,
    /// The meaning of these values, in Markdown.
    pub meaning: &'static str,
    /// The behaviour without it, in Markdown.
    pub default: &'static str,
    /// The part of foldback that reads it.
    pub reader: Reader,
    /// For one that is part of [`Config`].
    parse: Option<Parse>,
}

use Reader::{Agent, AllRanks, Command, EachRank};

/// Every setting, in the order in which the documents list them.
#[rustfmt::skip]
pub const SETTINGS: &[Setting] = &[
    Setting { name: "FOLDBACK", form: "on or off", reader: AllRanks, default: "`on`",
        meaning: "`on`, `off`: pass every call through",
        parse: Some(|config, text| one_of(&mut config.enabled, text, &[("on", true), ("off", false)])) },
    Setting { name: "FOLDBACK_STATS", form: "a file", reader: EachRank, default: "none",
        meaning: "a file, or `-` for standard output: rank 0 writes one JSON document for the job in MPI_Finalize",
        parse: Some(|config, text| { config.stats = Some(text.into()); Some(()) }) },
    Setting { name: "FOLDBACK_REPORT", form: "off, line or full", reader: EachRank,
        default: "`off`; `line` with `foldback run` and `foldback lab run`",
        meaning: "report of rank 0 on standard error in MPI_Finalize: `off`: none; `line`: the number of folded calls, and the calls that were not folded; `full`: all statistics, as tables",
        parse: Some(|config, text| one_of(&mut config.report, text,
            &[("off", Report::Off), ("line", Report::Line), ("full", Report::Full)])) },
    Setting { name: "FOLDBACK_LOG", form: "error, warn, info, debug or trace, or as env_logger has it", reader: EachRank, default: "`warn`",
        meaning: "lines of the log on standard error, with host and rank: `error`, `warn`, `info`, `debug`, `foldback=debug`, … (env_logger)",
        parse: None },
    Setting { name: "FOLDBACK_ROUTE", form: "auto, fold or mpi", reader: AllRanks, default: "`auto`",
        meaning: "`auto`: blocking collectives go by the measured way ([architecture](../contributing/architecture.md#the-router)), all else by the limits; `fold`: everything goes by the limits; `mpi`: everything goes to the real MPI",
        parse: Some(|config, text| one_of(&mut config.shared.policy, text,
            &[("auto", Policy::Auto), ("fold", Policy::Fold), ("mpi", Policy::Mpi)])) },
    Setting { name: "FOLDBACK_PROFILE", form: "a file", reader: AllRanks, default: "none",
        meaning: "a file that rank 0 reads in MPI_Init and writes in MPI_Finalize. It has the measured ways, by MPI and numbers of hosts and ranks; the next job of that kind begins with the best ones. The file may be absent at first. Other ranks only need some value",
        parse: Some(|config, text| { config.profile = Some(text.into()); config.shared.profile = true; Some(()) }) },
    Setting { name: "FOLDBACK_MAX_BYTES", reader: AllRanks,
        form: "a number of bytes, or a list such as allreduce=65536,reduce=65536,bcast=32768",
        default: "see the table in [`src/call/collective.rs`](../../src/call/collective.rs)",
        meaning: "largest message that is folded, in bytes, counted as [coverage](coverage.md) says; or a list for some collectives: `allreduce=65536,bcast=8192`. For collectives with a measured way the defaults only choose the first way; a given limit holds for all",
        parse: Some(|config, text| {
            config.shared.max_bytes = max_bytes(text)?;
            config.shared.limited = true;
            Some(())
        }) },
    Setting { name: "FOLDBACK_SUM", form: "auto, rank-order or exact", reader: AllRanks, default: "`auto`",
        meaning: "MPI_SUM of float, double and complex numbers of these ([floats](floats.md)). `exact`: the exact sum of all contributions, rounded once, with the same bits on any number of hosts; `rank-order`: folded in the order of ranks; `auto`: exact where it costs no more, up to one chunk of all ranks",
        parse: Some(|config, text| one_of(&mut config.shared.sum, text,
            &[("auto", Sum::Auto), ("rank-order", Sum::RankOrder), ("exact", Sum::Exact)])) },
    Setting { name: "FOLDBACK_QUANTIZE", reader: AllRanks, default: "`off`",
        form: Quantize::FORM,
        meaning: "`fixed32`, `int16`, `int8`: integers of so many bits make up MPI_SUM of float, double, complex numbers of these and numbers of 16 bits. It is faster, and a little off ([quantization](quantization.md)). It holds for MPI_Allreduce, MPI_Reduce and MPI_Reduce_scatter(_block), in every form. Options: numbers with one exponent in common (`,block=256`); least bytes of a sum (`,min=65536`); rounding by chance (`,stochastic=SEED`); rounding errors carried into the next sum (`,error_feedback`)",
        parse: Some(|config, text| {
            config.shared.quantize = Quantize::read(text)?;
            Some(())
        }) },
    Setting { name: "FOLDBACK_SETUP_CALLS", form: "a number of calls", reader: AllRanks, default: "300",
        meaning: "number of eligible calls on a communicator, or on all communicators of the same ranks, before foldback sets up a group (1 to 20 ms); 0: MPI_COMM_WORLD gets its group in MPI_Init, others at the first blocking call",
        parse: Some(|config, text| number(&mut config.shared.setup_calls, text)) },
    Setting { name: "FOLDBACK_ALGORITHM", form: "auto, star, direct, ring or shards", reader: AllRanks, default: "`auto`",
        meaning: "algorithm of folds to all ([protocol](../contributing/protocol.md)), the only one that is tried beside MPI. `star`: one aggregator for each chunk; `direct`: from everyone to everyone; `ring`: from one to the next, twice round; `shards`: a part for each host, in broadcasts too; `auto`: as measured. It begins with shards from 4 KiB on (broadcasts: 32 KiB), below that with direct between two hosts, else star",
        parse: Some(|config, text| one_of(&mut config.shared.algorithm, text,
            &[("auto", None), ("star", Some(Algorithm::Star)), ("direct", Some(Algorithm::Direct)), ("ring", Some(Algorithm::Ring)), ("shards", Some(Algorithm::Shards))])) },
    Setting { name: "FOLDBACK_TRANSPORT", form: "auto, programs or sockets", reader: AllRanks, default: "`auto`",
        meaning: "carrier of frames. `programs`: BPF programs, or there is no group; `sockets`: ordinary sockets ([second transport](../contributing/protocol.md#the-second-transport)), without any agent or privilege. Then the ranks fold, by default messages of up to one frame; `auto`: programs if every host has them, else sockets between up to 4 hosts",
        parse: Some(|config, text| one_of(&mut config.shared.transport, text,
            &[("auto", TransportChoice::Auto), ("programs", TransportChoice::Programs), ("sockets", TransportChoice::Sockets)])) },
    Setting { name: "FOLDBACK_MULTICAST", form: "auto or off", reader: AllRanks, default: "`auto`",
        meaning: "`auto`: results and broadcasts go by one frame to an IP multicast address of the group's, between more than two hosts that all hear it; `off`: by one frame to each host",
        parse: Some(|config, text| one_of(&mut config.shared.multicast, text, &[("auto", true), ("off", false)])) },
    Setting { name: "FOLDBACK_AUTH", form: "on or off", reader: AllRanks, default: "`on`",
        meaning: "`on`: each frame bears a code that only members of its group can make, and no frame is believed without it ([security](../running/security.md)); `off`: a checksum, which finds accidents only, and costs less",
        parse: Some(|config, text| one_of(&mut config.shared.auth, text, &[("on", true), ("off", false)])) },
    Setting { name: "FOLDBACK_WINDOW", form: "a power of two from 256 to 4096", reader: AllRanks, default: "1024 up to 4 hosts, 2048 beyond",
        meaning: "number of cells of a group, a power of two from 256 to 4096. A cell takes 1472 bytes of kernel memory on each host. If the hosts' links have an MTU of 4096 or more, a group has a quarter of this number, at least 256, and a cell takes 8960 bytes",
        parse: Some(|config, text| {
            let window = text.parse::<u32>().ok()?;
            config.shared.window = Some(window);
            (window.is_power_of_two() && (LEAST_WINDOW..=FB_MAX_WINDOW).contains(&window)).then_some(())
        }) },
    Setting { name: "FOLDBACK_SETUP_TIMEOUT", form: "seconds, at least 1", reader: EachRank, default: "60",
        meaning: "seconds that ranks may take to [meet](../contributing/architecture.md#groups) after a common call. Then the job ends with a message: some ranks were started without foldback",
        parse: Some(|config, text| seconds(&mut config.setup_timeout, text)) },
    Setting { name: "FOLDBACK_PROBE_TIMEOUT", form: "seconds, at least 1", reader: EachRank, default: "5",
        meaning: "seconds that the first frames may take to go round, before the group is left to MPI",
        parse: Some(|config, text| seconds(&mut config.probe_timeout, text)) },
    Setting { name: "FOLDBACK_NET", form: "ADDRESS/LENGTH, or several with commas between", reader: EachRank,
        default: "all, the default route's network preferred",
        meaning: "networks to use, `ADDRESS/LENGTH,…`: the first one that all hosts are in, and the others if it fails in mid-run",
        parse: Some(|config, text| {
            let networks = text.split(',').map(|network| network.trim().parse());
            config.networks = networks.collect::<Result<_, _>>().ok()?;
            Some(())
        }) },
    Setting { name: "FOLDBACK_PAIRS_MEMORY", form: "a number of bytes", reader: EachRank,
        default: "half of the free memory, in equal parts for the communicator's ranks on the machine",
        meaning: "bytes that a [`foldback_pairs`](pairs.md) may take on a rank. It is read when the object is made",
        parse: Some(|config, text| { config.pairs_memory = Some(text.parse().ok()?); Some(()) }) },
    Setting { name: "FOLDBACK_PAIRS_BY", form: "process or kernel", reader: EachRank, default: "`process`",
        meaning: "combines the pairs of a [`foldback_pairs`](pairs.md) that come from other ranks: `process`: their owner's process; `kernel`: its kernel, as they come, if the communicator has a group with one rank on each host, all ranks say so, and values are words",
        parse: Some(|config, text| one_of(&mut config.pairs_by, text,
            &[("process", Combiner::Process), ("kernel", Combiner::Kernel)])) },
    Setting { name: "FOLDBACK_AGENT_SOCKET", form: "a path, or @NAME", reader: EachRank, default: "`/run/foldback/agent.sock`",
        meaning: "the agent's socket: a path, or `@name` for an abstract one",
        parse: None },
    Setting { name: CONF, form: "a file, or nothing for none", reader: EachRank, default: "`/etc/foldback.conf`",
        meaning: "the [file of the site](#the-file-of-a-site); empty: none. Agents and the command read it, too. The environment alone has this variable",
        parse: None },
    Setting { name: "FOLDBACK_HOOK", form: "auto, tc or xdp", reader: Agent, default: "`auto`: as `tc`",
        meaning: "`tc` or `xdp`: hook at which the programs take frames in ([choice](../running/agent.md#choice-of-the-hook))", parse: None },
    Setting { name: "FOLDBACK_PORT", form: "a port from 1 to 65535", reader: Agent,
        default: "`FB_UDP_PORT` in [`bpf/wire.h`](../../bpf/wire.h)",
        meaning: "UDP port of all frames, the same on all hosts", parse: None },
    Setting { name: "FOLDBACK_ECHO", form: "on or off", reader: Agent, default: "`on`",
        meaning: "`off`: agents of this host do not answer [`foldback doctor --peers`](../running/agent.md#other-hosts) on others", parse: None },
    Setting { name: "FOLDBACK_CPU_TIME", form: "on or off", reader: Agent, default: "`off`",
        meaning: "`on`: the programs count the CPU time that they take for each group, which [metrics](../running/agent.md#metrics) and status tell", parse: None },
    Setting { name: "FOLDBACK_METRICS", form: "a loopback address such as 127.0.0.1:9337, or a path", reader: Command, default: "none",
        meaning: "place where `foldback agent` serves [metrics](../running/agent.md#metrics): a loopback address such as `127.0.0.1:9337`, or the path of a socket", parse: None },
    Setting { name: "FOLDBACK_LIB", form: "a path", reader: Command, default: "beside the command, or in `../lib`",
        meaning: "the library that `foldback run` and `foldback lab run` preload", parse: None },
];

/// Names that are not for users: they belong to labs and tests.
const INTERNAL: [&str; 3] = ["FOLDBACK_LAB_", "FOLDBACK_TEST_", "FOLDBACK_RENEW_"];

fn one_of<T: Copy>(into: &mut T, text: &str, words: &[(&str, T)]) -> Option<()> {
    *into = words.iter().find(|(word, _)| *word == text)?.1;
    Some(())
}

fn number(into: &mut u32, text: &str) -> Option<()> {
    *into = text.parse().ok()?;
    Some(())
}

fn seconds(into: &mut Duration, text: &str) -> Option<()> {
    *into = Duration::from_secs(text.parse().ok().filter(|seconds| *seconds > 0)?);
    Some(())
}

/// The value that the environment has, or else the file, as far as that makes sense. An empty one is none.
pub fn lookup(name: &str) -> Option<Value> {
    let value = match std::env::var_os(name) {
        Some(text) => Some(Value { text: text.to_string_lossy().into_owned(), place: None }),
        None => site().value(name).cloned(),
    };
    value.filter(|value| !value.text.is_empty())
}

/// The value of a setting.
///
/// # Errors
/// One line that says what is wrong with the file.
pub fn get(name: &str) -> Result<Option<Value>, String> {
    site().wrong.clone().map_or_else(|| Ok(lookup(name)), Err)
}

/// Whether environment or file name a setting, be it without a value.
pub fn is_named(name: &str) -> bool {
    std::env::var_os(name).is_some() || site().value(name).is_some()
}

/// Reads all that is part of [`Config`].
///
/// # Errors
/// One line that names the setting and what it may be.
pub(crate) fn read(value_of: impl Fn(&str) -> Option<Value>) -> Result<Config, String> {
    let mut config = Config::default();
    for setting in SETTINGS {
        if let Some((parse, value)) = setting.parse.zip(value_of(setting.name)) {
            let before = config.shared.clone();
            parse(&mut config, &value.text).ok_or_else(|| wrong(setting.name, &value))?;
            if config.shared != before {
                config.given.insert(setting.name.into(), value);
            }
        }
    }
    Ok(config)
}

/// Makes sure that a value makes sense to the library, if it is the library's.
///
/// # Errors
/// One line that names the setting and what it may be.
pub fn check(name: &str, value: &Value) -> Result<(), String> {
    read(|asked| (asked == name).then(|| value.clone())).map(drop)
}

/// The first setting whose values of a rank and of rank 0 do not mean the same, and how these differ, in one line.
pub(crate) fn difference(rank: usize, its: &Given, first: &Given) -> Option<String> {
    let alone = |name, given: &Given| {
        let config = read(|asked| given.get(asked).filter(|_| asked == name).cloned());
        config.map(|config| config.shared)
    };
    let differs = |setting: &&Setting| alone(setting.name, its) != alone(setting.name, first);
    let name = SETTINGS.iter().find(differs)?.name;
    let both = [its, first].map(|given| given.get(name));
    let advice = match both.iter().flatten().any(|value| value.place.is_some()) {
        true => "each host reads its own file",
        false => "mpirun hands on only what -x names, `foldback run` all",
    };
    let [its, first] = both.map(|value| value.map_or_else(|| "not set".into(), Value::to_string));
    Some(format!(
        "{name} is {its} on rank {rank} and {first} on rank 0: all ranks must have it alike ({advice})"
    ))
}

/// The error for a value that makes no sense.
pub fn wrong(name: &str, Value { text, place }: &Value) -> String {
    let form = SETTINGS.iter().find(|setting| setting.name == name).map_or("", |s| s.form);
    let place = place.as_ref().map(|place| format!("{place}: ")).unwrap_or_default();
    format!("{place}{name}={text}: {form}")
}

/// Logs a warning of each name that looks like foldback's, and that nothing reads.
pub fn warn() {
    let of_environment = std::env::vars_os()
        .map(|(name, _)| name.to_string_lossy().into_owned())
        .filter(|name| name.starts_with("FOLDBACK") && !is_internal(name))
        .filter_map(|name| warning(&name));
    let of_file = site().lines.iter().filter(|line| line.counts).filter_map(warning_of_line);
    of_environment.chain(of_file).for_each(|line| log::warn!("{line}"));
}

/// A warning of a line that sets nothing.
pub fn warning_of_line(line: &Line) -> Option<String> {
    let warning = match line.name == CONF {
        true => Some(format!("{CONF} counts in the environment alone")),
        false => warning(&line.name),
    };
    warning.map(|warning| format!("{}: {warning}", line.value.origin()))
}

fn is_internal(name: &str) -> bool {
    INTERNAL.iter().any(|prefix| name.starts_with(prefix))
}

fn warning(name: &str) -> Option<String> {
    if SETTINGS.iter().any(|setting| setting.name == name) {
        return None;
    }
    let distance = |setting: &&Setting| strsim::damerau_levenshtein(name, setting.name);
    let nearest = SETTINGS.iter().min_by_key(distance).filter(|s| distance(s) <= 4);
    let hint = nearest.map(|s| format!(": is {} meant?", s.name)).unwrap_or_default();
    Some(format!("{name} is no setting of foldback{hint}"))
}

/// The tables of docs/using/environment.md, of what the library, agents and the command read.
pub fn tables() -> [String; 3] {
    let table = |readers: &[Reader]| {
        let all = readers.contains(&AllRanks);
        let mut text = String::from("| variable | values | default |");
        text +=
            if all { " alike on all ranks |\n|---|---|---|---|\n" } else { "\n|---|---|---|\n" };
        for setting in SETTINGS.iter().filter(|setting| readers.contains(&setting.reader)) {
            text += &format!("| `{}` | {} | {} |", setting.name, setting.meaning, setting.default);
            text += match (all, setting.reader) {
                (false, _) => "\n",
                (true, AllRanks) => " yes |\n",
                (true, _) => " no |\n",
            };
        }
        text
    };
    [table(&[AllRanks, EachRank]), table(&[Agent]), table(&[Command])]
}

/// A list for `--help`.
pub fn help() -> String {
    let mut text = format!(
        "Settings, in the environment or in {} (docs/using/environment.md says more):\n",
        site::DEFAULT_PATH
    );
    for setting in SETTINGS {
        text += &format!("  {:<24}{}\n", setting.name, setting.form);
    }
    text
}

/// An example of a site's file, which sets nothing: dist/foldback.conf.
pub fn example() -> String {
    let mut text = format!(
        "\
# Settings of foldback for all users of this host: copy to {} what is to count. The environment wins over
# this file. The same file belongs on every host. docs/using/environment.md has the meaning of each setting.
# `foldback doctor` shows what counts.
",
        site::DEFAULT_PATH
    );
    for setting in SETTINGS.iter().filter(|setting| setting.name != CONF) {
        text += &format!("\n# {}\n#{} =\n", setting.form, setting.name);
    }
    text + "
# Lines below this one count for programs with these names alone. A * stands for anything.
#[program gmx_mpi lmp*]
#FOLDBACK = off

# Lines below this one count for these users alone, by name or number.
#[user alice 1001]
#FOLDBACK_LOG = info
"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_setting_and_is_none_is_told() {
        let told = |name| warning(name).unwrap_or_default();
        let meant = "FOLDBACK_MAXBYTES is no setting of foldback: is FOLDBACK_MAX_BYTES meant?";
        assert_eq!(told("FOLDBACK_MAXBYTES"), meant);
        assert_eq!(told("FOLDBACK_X_Y_Z"), "FOLDBACK_X_Y_Z is no setting of foldback");
        assert_eq!(told("FOLDBACK_NET"), "");
        assert!(is_internal("FOLDBACK_LAB_RUN") && !is_internal("FOLDBACK_NET"));
    }

    #[test]
    fn every_form_is_one_short_line_and_every_name_is_there_once() {
        for setting in SETTINGS {
            assert!(!setting.form.is_empty() && setting.form.len() < 90, "{}", setting.name);
            assert_eq!(SETTINGS.iter().filter(|other| other.name == setting.name).count(), 1);
        }
        assert!(SETTINGS.iter().any(|s| s.form.contains(&FB_MAX_WINDOW.to_string())));
    }

    /// A value of each setting of a process other than its default.
    const OTHERS: [(&str, &str); 20] = [
        ("FOLDBACK", "off"),
        ("FOLDBACK_STATS", "-"),
        ("FOLDBACK_REPORT", "line"),
        ("FOLDBACK_ROUTE", "mpi"),
        ("FOLDBACK_PROFILE", "file"),
        ("FOLDBACK_MAX_BYTES", "7"),
        ("FOLDBACK_SUM", "exact"),
        ("FOLDBACK_QUANTIZE", "int8"),
        ("FOLDBACK_SETUP_CALLS", "3"),
        ("FOLDBACK_ALGORITHM", "ring"),
        ("FOLDBACK_MULTICAST", "off"),
        ("FOLDBACK_AUTH", "off"),
        ("FOLDBACK_WINDOW", "256"),
        ("FOLDBACK_SETUP_TIMEOUT", "7"),
        ("FOLDBACK_PROBE_TIMEOUT", "7"),
        ("FOLDBACK_NET", "10.0.0.0/8"),
        ("FOLDBACK_PAIRS_MEMORY", "7"),
        ("FOLDBACK_PAIRS_BY", "kernel"),
        ("FOLDBACK_TRANSPORT", "programs"),
        ("FOLDBACK_TRANSPORT", "sockets"),
    ];

    fn given(name: &str, value: &str) -> Given {
        read(|asked| (asked == name).then(|| value.into())).expect("a value").given
    }

    #[test]
    fn ranks_compare_just_what_must_be_alike() {
        for setting in SETTINGS.iter().filter(|s| s.parse.is_some() || s.reader == AllRanks) {
            let values: Vec<_> = OTHERS.iter().filter(|(name, _)| *name == setting.name).collect();
            assert!(!values.is_empty(), "{}", setting.name);
            // Ranks that are off answer no roll call.
            let is_told = setting.reader == AllRanks && setting.name != "FOLDBACK";
            for (name, value) in values {
                let (its, none) = (given(name, value), Given::new());
                assert_eq!(its.contains_key(*name), is_told, "{name}");
                let why = difference(3, &its, &none).unwrap_or_default();
                let start = format!("{name} is {value} on rank 3 and not set on rank 0: ");
                assert_eq!(why.starts_with(&start), is_told, "{why}");
                assert_eq!(difference(3, &none, &its).is_some(), is_told, "{name}");
                assert_eq!(difference(3, &its, &its), None);
            }
        }
    }

    #[test]
    fn a_difference_says_which_line_has_a_value() {
        let place = Some("/etc/foldback.conf:7".to_owned());
        let value = Value { text: "exact".into(), place };
        let of_file = Given::from([("FOLDBACK_SUM".into(), value)]);
        let why = difference(1, &of_file, &Given::new()).unwrap_or_default();
        let start =
            "FOLDBACK_SUM is exact (/etc/foldback.conf:7) on rank 1 and not set on rank 0: ";
        assert!(why.starts_with(start), "{why}");
        assert_eq!(difference(1, &of_file, &given("FOLDBACK_SUM", "exact")), None);
    }

    #[test]
    fn a_value_of_a_file_is_refused_with_its_line() {
        let value = Value { text: "7".into(), place: Some("conf:3".into()) };
        let why = check("FOLDBACK_WINDOW", &value).unwrap_err();
        assert_eq!(why, "conf:3: FOLDBACK_WINDOW=7: a power of two from 256 to 4096");
        assert_eq!(check("FOLDBACK_PAIRS_MEMORY", &value), Ok(()));
    }

    #[test]
    fn lines_that_set_nothing_are_told() {
        let told = |name: &str, text: &str| {
            let value = Value { text: text.into(), place: Some("conf:3".into()) };
            let line = Line { name: name.into(), value, section: None, counts: true };
            warning_of_line(&line).unwrap_or_default()
        };
        let meant = "conf:3: FOLDBACK_NETS is no setting of foldback: is FOLDBACK_NET meant?";
        assert_eq!(told("FOLDBACK_NETS", "10.0.0.0/8"), meant);
        assert_eq!(told(CONF, "/conf"), "conf:3: FOLDBACK_CONF counts in the environment alone");
        assert!(told("FOLDBACK_TEST_TC", "clsact").starts_with("conf:3: FOLDBACK_TEST_TC is no "));
        assert_eq!(told("FOLDBACK_NET", "10.0.0.0/8"), "");
    }

    #[test]
    fn the_example_sets_nothing_but_for_its_sections() {
        let text = example().replace("\n#FOLDBACK", "\nFOLDBACK").replace("\n#[", "\n[");
        let site = site::Site::of_text(&text);
        assert_eq!(site.wrong, None);
        assert_eq!(site.lines.iter().find_map(warning_of_line), None);
        let (of_all, of_some): (Vec<_>, Vec<_>) =
            site.lines.iter().partition(|line| line.section.is_none());
        assert!(of_all.iter().all(|line| line.value.text.is_empty()));
        let names: Vec<_> = of_all.iter().map(|line| &*line.name).collect();
        let all = SETTINGS.iter().map(|setting| setting.name);
        assert_eq!(names, all.filter(|name| *name != CONF).collect::<Vec<_>>());
        assert!(of_some.len() == 2 && of_some.iter().all(|l| check(&l.name, &l.value).is_ok()));
    }

    #[test]
    fn values_that_mean_the_same_do_not_differ() {
        for (name, one, other) in
            [("FOLDBACK_PROFILE", "here", "there"), ("FOLDBACK_MAX_BYTES", "bcast=7", "Bcast=07")]
        {
            assert_eq!(difference(1, &given(name, one), &given(name, other)), None);
        }
        assert_eq!(difference(1, &given("FOLDBACK_SUM", "auto"), &Given::new()), None);
    }
}
