//! The choice of a way, by measurement, for each communicator, kind of blocking calls and class of sizes. Either the
//! kernel or user space folds, by one of several algorithms, or the real MPI does it all.
//!
//! The ways are tried on the program's own calls, a few of each in turns, and timed on every rank. A fold of the group
//! adds up what the ranks have measured, so all choose alike, at the same call. No other message is exchanged for it.
//! [`super::class`] says when each way is tried.
//!
//! The limits alone route calls that do not block. They also route calls for which the real MPI may compute other bits
//! (floating point; integers where some MPI is wrong, docs/decisions/15-exact-integers.md).

use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};

use serde::{Deserialize, Serialize};

use super::class::SizeClass;
use super::kind::{Kind, Trials};
use super::way::{ORDER, WAYS, Way};
use crate::wire::Algorithm;

/// The properties of a group that matter here, alike on all its ranks.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub members: usize,
    /// Ranks on all hosts.
    pub ranks: usize,
    /// Whether it can go by shards, which is tried beyond one chunk.
    pub has_shards: bool,
    /// Whether pairs of ranks have parcels.
    pub has_pairs: bool,
    pub chunk_bytes: usize,
    /// `FOLDBACK_ALGORITHM`: the only one to be tried.
    pub algorithm: Option<Algorithm>,
}

/// Limits of trials, which docs/decisions/14-router-by-measurement.md has figures for. Direct folds: hosts, since
/// frames grow with their square, and bytes of a message. Folds by a star: bytes of a message.
const DIRECT_MEMBERS: usize = 8;
const DIRECT_BYTES: usize = 8 << 10;
const STAR_BYTES: usize = 64 << 10;
/// The shortest broadcasts that are tried by shards.
const SCATTER_BYTES: usize = 4 << 10;

/// The choices of one communicator.
pub struct Router {
    setting: Setting,
    kinds: &'static [Kind],
    /// By kind and size, see [`ClassId`].
    classes: Vec<Option<Box<SizeClass>>>,
}

/// Classes of sizes: class k is up to 2^k bytes.
const SIZES: usize = usize::BITS as usize + 1;

fn size_class(bytes: usize) -> usize {
    bytes.checked_next_power_of_two().map_or(SIZES - 1, |size| size.trailing_zeros() as usize)
}

/// The number of a class of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassId(usize);

impl ClassId {
    /// The class of calls of the kind with this number, of so many bytes.
    pub fn new(kind: usize, bytes: usize) -> Self {
        Self(kind * SIZES + if bytes == 0 { 0 } else { size_class(bytes) })
    }

    fn kind(self) -> usize {
        self.0 / SIZES
    }

    /// Bytes of its longest message.
    fn most_bytes(self) -> usize {
        1_usize.checked_shl((self.0 % SIZES) as u32).unwrap_or(usize::MAX)
    }
}

impl Router {
    /// Nothing has been measured. A kind's number is its place in `kinds`.
    pub fn new(setting: Setting, kinds: &'static [Kind]) -> Self {
        let classes = (0..kinds.len() * SIZES).map(|_| None).collect();
        Self { setting, kinds, classes }
    }

    /// The class, whose way is `usual` as long as nothing is known.
    pub fn class(&mut self, id: ClassId, usual: Way) -> &mut SizeClass {
        let Self { setting, kinds, classes } = self;
        classes[id.0].get_or_insert_with(|| {
            let kind = &kinds[id.kind()];
            let ways = ways(kind, id.most_bytes(), setting);
            Box::new(SizeClass::new(ways, usual, setting.ranks, kind.pace()))
        })
    }

    /// Takes over what was measured before, for classes of which nothing is known here.
    pub fn learn(&mut self, routes: &[RouteLine]) {
        for route in routes {
            let kind = self.kinds.iter().position(|kind| kind.name == route.collective);
            let Some(kind) = kind else { continue };
            let id = ClassId::new(kind, route.up_to_bytes);
            let kind = &self.kinds[kind];
            let ways = ways(kind, id.most_bytes(), &self.setting);
            let chosen = Way::named(&route.way).filter(|way| ways.contains(way));
            let (None, Some(chosen)) = (&self.classes[id.0], chosen) else { continue };
            let cost = |way: Way| route.nanoseconds.get(way.name()).copied();
            let (costs, ranks) = (ORDER.map(cost), self.setting.ranks);
            let class = SizeClass::from_costs(ways, (chosen, costs), ranks, kind.pace());
            self.classes[id.0] = Some(Box::new(class));
        }
    }

    /// The class, if there is one.
    pub fn known(&mut self, id: ClassId) -> Option<&mut SizeClass> {
        self.classes[id.0].as_deref_mut()
    }

    /// Takes what all ranks have measured of a class, added up. The new choice, if that changed it.
    pub fn take_agreed(&mut self, id: ClassId, sums: [u64; WAYS]) -> Option<RouteLine> {
        let class = self.known(id)?;
        let before = class.changes();
        class.take_agreed(sums);
        (class.changes() > before).then(|| self.line(id))?
    }

    /// The choices, and the measurements behind them.
    pub fn lines(&self) -> Vec<RouteLine> {
        (0..self.classes.len()).filter_map(|index| self.line(ClassId(index))).collect()
    }

    fn line(&self, id: ClassId) -> Option<RouteLine> {
        let class = self.classes[id.0].as_ref()?;
        let cost = |way: &Way| Some((way.name().to_owned(), class.cost(*way)?));
        let kind = &self.kinds[id.kind()];
        Some(RouteLine {
            collective: kind.name.to_owned(),
            up_to_bytes: if kind.has_sizes { id.most_bytes() } else { 0 },
            way: class.chosen().name().to_owned(),
            nanoseconds: ORDER.iter().filter_map(cost).collect(),
            calls: class.calls(),
            trials: class.trials(),
            changes: class.changes(),
        })
    }
}

/// The ways that may pay for messages of up to so many bytes.
fn ways(kind: &Kind, most_bytes: usize, setting: &Setting) -> Vec<Way> {
    let folds = match setting.algorithm {
        Some(only) if !kind.trials.is_some_and(Trials::is_of_pairs) => vec![only],
        _ => kind.trials.map_or(vec![], |of| folds(of, most_bytes, setting)),
    };
    folds.into_iter().map(Way::Fold).chain([Way::Mpi]).collect()
}

/// The folds that may pay for messages of up to so many bytes.
fn folds(trials: Trials, bytes: usize, setting: &Setting) -> Vec<Algorithm> {
    let members = setting.members;
    match trials {
        Trials::FoldToAll => {
            let mut folds = Vec::new();
            if bytes <= STAR_BYTES {
                folds.push(Algorithm::Star);
            }
            if bytes <= DIRECT_BYTES && members <= DIRECT_MEMBERS {
                folds.push(Algorithm::Direct);
            }
            if setting.has_shards && bytes > setting.chunk_bytes {
                folds.push(Algorithm::Shards);
            }
            folds
        }
        Trials::Deposit if members <= DIRECT_MEMBERS => vec![Algorithm::Star, Algorithm::Direct],
        // The root of a broadcast by shards waits for the others; between two nothing is gained by it.
        Trials::FanOut if setting.has_shards && bytes >= SCATTER_BYTES && members > 2 => {
            vec![Algorithm::Star, Algorithm::Shards]
        }
        Trials::Columns
            if !(setting.has_pairs && bytes / 2 >= setting.ranks * setting.chunk_bytes) =>
        {
            self::folds(Trials::Deposit, bytes, setting)
        }
        Trials::ToRoot if bytes / 2 < setting.chunk_bytes => vec![Algorithm::Star],
        Trials::Star | Trials::Deposit | Trials::FanOut => vec![Algorithm::Star],
        Trials::Pairs | Trials::PairsOfRoot | Trials::Columns | Trials::ToRoot => {
            vec![Algorithm::Direct]
        }
    }
}

/// A choice, in the statistics.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RouteLine {
    /// Its kind: a collective, by MPI's name without `MPI_`.
    pub collective: String,
    /// Most bytes of its messages; they have more than half as many. 0: there are none, or no rank knows all sizes.
    pub up_to_bytes: usize,
    /// Name of the way that was chosen.
    pub way: String,
    /// Mean time of a call by each way that was measured, when it was last, over all ranks.
    pub nanoseconds: BTreeMap<String, u64>,
    /// Calls, of one rank.
    pub calls: u64,
    /// How often the ways were compared.
    pub trials: u64,
    /// How often that changed the choice.
    pub changes: u64,
}

impl RouteLine {
    /// The times behind the choice, in microseconds: "star 12.3, mpi 45.6".
    pub fn measured(&self) -> String {
        let cost = |(way, nanoseconds): (&String, &u64)| {
            format!("{way} {}.{}", nanoseconds / 1000, nanoseconds % 1000 / 100)
        };
        self.nanoseconds.iter().map(cost).collect::<Vec<_>>().join(", ")
    }
}

/// For the log, when a choice changes.
impl Display for RouteLine {
    fn fmt(&self, text: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { collective, up_to_bytes, way, calls, .. } = self;
        let measured = self.measured();
        write!(
            text,
            "{collective} of up to {up_to_bytes} bytes by {way} from call {calls} on: {measured} us"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of each kind of trials, and one without.
    const KINDS: &[Kind] = &[
        kind("sized", Some(Trials::FoldToAll), true),
        kind("without size", Some(Trials::Deposit), false),
        kind("of pairs", Some(Trials::Pairs), false),
        kind("never compared", None, true),
    ];

    const fn kind(name: &'static str, trials: Option<Trials>, has_sizes: bool) -> Kind {
        Kind { name, trials, has_sizes }
    }

    /// Of `members` hosts of one rank each.
    fn setting(members: usize) -> Setting {
        Setting {
            members,
            ranks: members,
            has_shards: true,
            has_pairs: true,
            chunk_bytes: 1408,
            algorithm: None,
        }
    }

    #[test]
    fn sizes_fall_into_powers_of_two() {
        for kind in 0..KINDS.len() {
            let most = |bytes| ClassId::new(kind, bytes).most_bytes();
            assert_eq!([1, 2, 3, 4096, 4097].map(most), [1, 2, 4, 4096, 8192]);
            assert_eq!(ClassId::new(kind, 0).kind(), kind);
            assert_eq!(ClassId::new(kind, 5).kind(), kind);
        }
    }

    #[test]
    fn the_real_mpi_is_always_among_the_ways() {
        for kind in KINDS {
            assert_eq!(ways(kind, 4096, &setting(4)).last(), Some(&Way::Mpi));
            let ring = Setting { algorithm: Some(Algorithm::Ring), ..setting(4) };
            // Pairs of ranks have one way of their own.
            let is_of_pairs = kind.trials.is_some_and(Trials::is_of_pairs);
            let by = if is_of_pairs { Algorithm::Direct } else { Algorithm::Ring };
            assert_eq!(ways(kind, 4096, &ring), [Way::Fold(by), Way::Mpi]);
        }
    }

    /// Also when another job learns the choice.
    #[test]
    fn a_kind_without_sizes_has_one_class() {
        for (number, kind) in KINDS.iter().enumerate() {
            let mut router = Router::new(setting(2), KINDS);
            let id = ClassId::new(number, 0);
            let usual = ways(kind, 0, &setting(2))[0];
            router.class(id, usual);
            let lines = router.lines();
            let [line] = &lines[..] else { panic!("{lines:?}") };
            assert_eq!(line.up_to_bytes != 0, kind.has_sizes, "{line:?}");
            let mut other = Router::new(setting(2), KINDS);
            other.learn(&lines);
            assert_eq!(other.known(id).map(|class| class.chosen()), Some(usual), "{line:?}");
            let unknown = RouteLine { collective: "of another release".into(), ..line.clone() };
            let mut third = Router::new(setting(2), KINDS);
            third.learn(&[unknown]);
            assert!(third.lines().is_empty());
        }
    }

    #[test]
    fn folds_are_tried_where_they_may_pay() {
        let all = |trials, bytes, members| {
            let name = |fold| Way::Fold(fold).name();
            folds(trials, bytes, &setting(members))
                .into_iter()
                .map(name)
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(all(Trials::FoldToAll, 4, 2), "star direct");
        assert_eq!(all(Trials::FoldToAll, 4, 16), "star");
        assert_eq!(all(Trials::FoldToAll, 4096, 4), "star direct shards");
        assert_eq!(all(Trials::FoldToAll, 1 << 20, 4), "shards");
        assert_eq!(all(Trials::Deposit, 4, 8), "star direct");
        assert_eq!(all(Trials::Deposit, 4, 9), "star");
        assert_eq!(all(Trials::FanOut, 1 << 20, 4), "star shards");
        assert_eq!(all(Trials::FanOut, 1 << 20, 2), "star");
        assert_eq!(all(Trials::Star, 8, 4), "star");
        // Rows of a chunk on each of 4 hosts.
        assert_eq!(all(Trials::Columns, 8192, 4), "star direct");
        assert_eq!(all(Trials::Columns, 16384, 4), "direct");
        assert_eq!(all(Trials::Columns, 8192, 16), "star");
        assert_eq!(all(Trials::ToRoot, 2048, 4), "star");
        assert_eq!(all(Trials::ToRoot, 4096, 4), "direct");
    }

    #[test]
    fn a_change_of_the_choice_is_told_once() {
        let setting = Setting { has_shards: false, ..setting(2) };
        let (mut router, mut told) = (Router::new(setting, KINDS), Vec::new());
        let id = ClassId::new(0, 4);
        for _ in 0..2000 {
            if let Some(sums) = router.known(id).and_then(|class| class.due()) {
                told.extend(router.take_agreed(id, sums.map(|sum| sum * 2)));
            }
            let class = router.class(id, Way::Fold(Algorithm::Star));
            let step = class.next();
            if step.timed {
                class.record_time(step.way, if step.way == Way::Mpi { 2500 } else { 9000 });
            }
        }
        let told: Vec<_> = told.iter().map(ToString::to_string).collect();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("sized of up to 4 bytes by mpi from call "), "{told:?}");
        assert!(told[0].contains("mpi 2.5"), "{told:?}");
    }
}
