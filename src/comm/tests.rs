//! Communicators of several ranks of one job. Each rank is a thread and has its own. The ranks tell each other words
//! through memory, and groups have no wire. All limits are small: groups come and go many times more than there are
//! places.

use std::collections::{HashMap, HashSet};
use std::ffi::c_int;
use std::sync::{Condvar, Weak};
use std::thread;
use std::time::Duration;

use super::family::{Families, Limits};
use super::*;
use crate::call::COLLECTIVES;
use crate::choice::{ClassId, Way};
use crate::config::Config;
use crate::engine::Engine;
use crate::mpi::pmpi::Handle;
use crate::random::Rng;
use crate::topology::{Image, Layout, Place};
use crate::wire::Algorithm;

fn tries(communicator: &Communicator, calls: u32) -> Vec<(u32, When)> {
    let mut tries = Vec::new();
    for call in 1..=calls {
        let in_vain = |when| {
            tries.push((call, when));
            Err(Lack::Now)
        };
        assert!(communicator.folding_or(4, in_vain).is_err());
    }
    tries
}

#[test]
fn who_had_a_group_tries_again_ever_more_seldom() {
    let communicator = Communicator::new((0, 2), None, None).renewed(Err(Lack::Now));
    let again = [10_000, 30_000, 70_000, 150_000].map(|call| (call, When::Again));
    assert_eq!(tries(&communicator, 150_000), again);
    assert!(communicator.unless_declined().is_ok());
}

#[test]
fn who_had_a_group_tries_again_soon_where_agents_prepare_one() {
    let communicator = Communicator::new((0, 2), None, None).renewed(Err(Lack::Soon));
    let mut tries = Vec::new();
    for call in 1..=40_000 {
        let lack = if tries.len() < 3 { Lack::Soon } else { Lack::Now };
        let in_vain = |when| {
            tries.push((call, when));
            Err(lack)
        };
        assert!(communicator.folding_or(4, in_vain).is_err());
    }
    // After 64, 128, 256 and 512 calls; then there is none to be had.
    let again = [64, 192, 448, 960, 10_960, 30_960].map(|call| (call, When::Again));
    assert_eq!(tries, again);
}

#[test]
fn a_choice_of_quantization_goes_along_with_a_new_group() {
    let [usual, own] = ["int8", "int16"].map(|text| text.parse::<Quantize>().ok());
    let communicator = Communicator::new((0, 2), None, None);
    for (choice, how) in [
        (QuantizeChoice::Usual, usual),
        (QuantizeChoice::Own(own), own),
        (QuantizeChoice::Own(None), None),
    ] {
        communicator.quantization().choice = choice;
        let renewed = communicator.renewed(Err(Lack::Now));
        assert_eq!(renewed.quantization().choice.or(usual), how);
    }
}

#[test]
fn who_never_had_one_tries_at_the_first_call_and_once_more() {
    let communicator = Communicator::new((0, 2), None, None);
    assert_eq!(tries(&communicator, 4), [(1, When::First), (4, When::Due)]);
    assert_eq!(communicator.unless_declined(), Err(Reason::NoGroup));
}

#[test]
fn what_ranks_know_of_each_other_holds_for_their_communicators_if_one_thread_calls() {
    for ordered in [true, false] {
        let families = Families::default();
        let communicator = |ranks: &[c_int]| {
            let mut new = Communicator::new((0, ranks.len()), None, None);
            new.family = families.of(ranks.to_vec());
            new
        };
        let alike = Alike { completes: true, ordered };
        let (one, relative, other) =
            (communicator(&[0, 1]), communicator(&[0, 1]), communicator(&[0, 2]));
        assert!(one.meets() && !one.meets());
        one.set_alike(alike);
        assert_eq!(one.alike(), Some(alike));
        assert_eq!(relative.alike(), ordered.then_some(alike));
        assert_eq!(other.alike(), None);
        assert!(!relative.is_met() && !other.is_met());
        let renewed = one.renewed(Err(Lack::Now));
        assert!(renewed.is_met() && renewed.alike() == Some(alike));
    }
}

#[test]
fn who_is_told_to_come_later_comes_after_as_many_calls_again() {
    let communicator = Communicator::new((0, 2), None, None);
    let mut tries = Vec::new();
    for call in 1..=32 {
        let later = |when| {
            tries.push((call, when));
            Err(if call < 32 { Lack::Yet } else { Lack::Now })
        };
        assert!(communicator.folding_or(4, later).is_err());
    }
    let due = [4, 8, 16, 32].map(|call| (call, When::Due));
    assert_eq!(tries, [&[(1, When::First)], due.as_slice()].concat());
    assert_eq!(communicator.unless_declined(), Err(Reason::NoGroup));
}

#[test]
fn who_awaits_an_answer_looks_again_after_some_calls() {
    let communicator = Communicator::new((0, 2), None, None);
    let mut tries = Vec::new();
    for call in 1..=200 {
        let awaits = |when| {
            tries.push((call, when));
            Err(Lack::Soon)
        };
        assert!(communicator.folding_or(4, awaits).is_err());
    }
    let due = [4, 68, 132, 196].map(|call| (call, When::Due));
    assert_eq!(tries, [&[(1, When::First)], due.as_slice()].concat());
}

/// The ranks of one communicator tell each other words here.
struct Meeting {
    ranks: usize,
    state: Mutex<State>,
    turn: Condvar,
}

#[derive(Default)]
struct State {
    round: u64,
    came: usize,
    /// The purpose of the ranks that have come, and their words folded.
    what: String,
    words: Vec<u64>,
    /// The words of all ranks, of the round before.
    all: Vec<u64>,
}

impl Meeting {
    fn new(ranks: usize) -> Self {
        Self { ranks, state: Mutex::default(), turn: Condvar::new() }
    }

    /// Folds the words of all ranks, which come for the same.
    fn fold<const N: usize>(
        &self,
        what: &str,
        words: [u64; N],
        op: fn(u64, u64) -> u64,
    ) -> [u64; N] {
        let mut state = self.state.lock().unwrap();
        if state.came == 0 {
            (state.what, state.words) = (what.into(), words.into());
        } else {
            assert_eq!(state.what, what, "ranks are in different collectives");
            state.words.iter_mut().zip(words).for_each(|(all, one)| *all = op(*all, one));
        }
        state.came += 1;
        if state.came == self.ranks {
            (state.round, state.came) = (state.round + 1, 0);
            state.all = std::mem::take(&mut state.words);
            self.turn.notify_all();
        } else {
            let round = state.round;
            let patience = Duration::from_secs(60);
            let waits = |state: &mut State| state.round == round;
            let timeout;
            (state, timeout) = self.turn.wait_timeout_while(state, patience, waits).unwrap();
            assert!(!timeout.timed_out(), "nobody else comes for {what}");
        }
        state.all.as_slice().try_into().expect("as many words")
    }

    /// The bits that all ranks have.
    fn bits_of_all(&self, bits: u64) -> u64 {
        self.fold("bits", [bits], |one, other| one & other)[0]
    }
}

/// One rank of a job.
struct Rank {
    rank: usize,
    communicators: Communicators,
    /// Something of each group that was made here, which lives as long as that.
    made: Mutex<Vec<Weak<Image>>>,
    /// Names of the groups that communicators have.
    taken: Mutex<HashSet<String>>,
}

impl Rank {
    fn new(rank: usize, families: Families) -> Self {
        let mut communicators = Communicators::default();
        communicators.families = families;
        Self { rank, communicators, made: Mutex::default(), taken: Mutex::default() }
    }

    /// A group of `ranks` ranks on as many hosts, under a name.
    fn group(&self, (place, ranks): (usize, usize), name: &str) -> Box<Folding> {
        let hosts: Vec<_> = (0..ranks).map(|host| host.to_string()).collect();
        let layout = Layout::new(hosts.iter().map(String::as_str));
        let mut place = Place::new(layout, place, 1408, false).unwrap();
        self.made.lock().unwrap().push(Arc::downgrade(&place.even_image(8)));
        let group = Group::new(Engine::new(place, None, None), None, false);
        Box::new(Folding::new(group, &Config::default().shared, name, true))
    }

    /// Groups that were made here and are not gone.
    fn groups(&self) -> usize {
        self.made.lock().unwrap().iter().filter(|group| group.strong_count() > 0).count()
    }

    fn end(&self) {
        self.communicators.retired.add(self.communicators.drain().into_iter());
        self.communicators.retired.reap(true);
        assert_eq!(self.groups(), 0, "groups that nobody has any more");
    }
}

/// Runs `rank` for each of so many ranks in a thread, and has all return the same.
fn alike<T: PartialEq + std::fmt::Debug + Send>(
    ranks: usize,
    run: impl Fn(usize) -> T + Sync,
) -> T {
    let mut all: Vec<T> = thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || run(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let first = all.swap_remove(0);
    all.iter().for_each(|other| assert_eq!(first, *other));
    first
}

const RANKS: usize = 3;
const SETS: [&[c_int]; 5] = [&[0, 1, 2], &[0, 1], &[1, 2], &[2, 0], &[1, 0]];
const SETUP_CALLS: u32 = 3;
const FEW: Limits = Limits { per_family: 2, families: 3, in_all: 3 };

/// A communicator, and by which group each of its calls went.
type Line = (Handle, Vec<Result<String, Reason>>);

/// Makes communicators and frees them, as one thread of a program on one rank.
fn make_and_free(
    rank: &Rank,
    meetings: &HashMap<Handle, Meeting>,
    (seed, lane, count): (u64, u64, usize),
    fails: bool,
) -> Vec<Line> {
    let Rank { communicators, taken, .. } = rank;
    let mut own = Rng(seed ^ (rank.rank as u64 + 1) << 40 ^ lane << 50);
    let (mut lines, mut held) = (Vec::new(), Vec::new());
    let free = |(comm, name): (Handle, String)| {
        taken.lock().unwrap().remove(&name);
        communicators.forget(comm);
    };
    for number in 0..count {
        let comm = lane as Handle * count + number + 1;
        let mut plan = Rng(seed ^ (comm as u64) << 20);
        let set = SETS[plan.below(2 * SETS.len() as u64) as usize % SETS.len()];
        let Some(place) = set.iter().position(|member| *member as usize == rank.rank) else {
            continue;
        };
        let place = (place, set.len());
        let mut set_up = |name: &str| {
            // Agents answer when they do; a group comes when all have, while calls are under way.
            let lacks = [u64::from(fails), u64::from(own.below(3) == 0)];
            let any = meetings[&comm].fold(name, lacks, |one, other| one | other);
            match any {
                [_, 1] => Err(Lack::Soon),
                [1, _] if comm.is_multiple_of(50) => Err(Lack::Now),
                _ => Ok(rank.group(place, name)),
            }
        };
        let mut communicator = Communicator::new(place, None, None);
        communicator.family = communicators.families.of(set.to_vec());
        let mut communicator = communicators.add(comm, communicator);
        let mut ready_by_chance = Rng(seed ^ (rank.rank as u64 + 1) << 30 ^ comm as u64);
        let mut line = Vec::new();
        let mut name = String::new();
        for call in 0..1 + plan.below(5) {
            let ready = ready_by_chance.below(4) > 0;
            let get = |when| {
                let agree = |bits| Some(meetings[&comm].bits_of_all(bits));
                let made = || set_up(&format!("{comm} at {call}"));
                let families = &communicators.families;
                families.group_for(&communicator, when, SETUP_CALLS, ready, agree, made)
            };
            // Some calls must not wait for the other ranks.
            let got = match plan.below(4) {
                0 => communicator.folding_now(),
                _ => communicator.folding_or(SETUP_CALLS, get),
            };
            let got = got.map(|held| held.as_ref().expect("a group").ground.mpi.clone());
            if let Ok(got) = &got
                && *got != name
            {
                taken.lock().unwrap().remove(&name);
                assert!(taken.lock().unwrap().insert(got.clone()), "two have {got}");
                name.clone_from(got);
            }
            let is_folded = got.is_ok();
            line.push(got);
            // Its group has lost its programs.
            if is_folded && plan.below(12) == 0 {
                let new = match plan.below(2) {
                    0 => set_up(&format!("{comm} after {call}")),
                    _ => Err(Lack::Now),
                };
                communicator = communicators.replace(comm, &communicator, new);
                taken.lock().unwrap().remove(&name);
            }
        }
        lines.push((comm, line));
        held.push((comm, name));
        while held.len() > own.below(4) as usize {
            free(held.swap_remove(own.below(held.len() as u64) as usize));
        }
    }
    held.into_iter().for_each(free);
    lines
}

/// When all communicators are freed, another one has a group at its first call, if its family has any place.
fn ask_once_more(
    rank: &Rank,
    meetings: &HashMap<Handle, Meeting>,
    comm: Handle,
    set: &'static [c_int],
) {
    let Some(place) = set.iter().position(|member| *member as usize == rank.rank) else { return };
    let place = (place, set.len());
    let mut communicator = Communicator::new(place, None, None);
    communicator.family = rank.communicators.families.of(set.to_vec());
    let places = communicator.family.as_ref().map_or(0, |family| family.places());
    let communicator = rank.communicators.add(comm, communicator);
    let agree = |bits| Some(meetings[&comm].bits_of_all(bits));
    let made = || Ok(rank.group(place, "the last"));
    let families = &rank.communicators.families;
    let got = communicator
        .folding_or(SETUP_CALLS, |when| {
            families.group_for(&communicator, when, SETUP_CALLS, true, agree, made)
        })
        .is_ok();
    assert!(got || places == 0, "{places} places of {set:?}, and no group");
    rank.communicators.forget(comm);
}

fn families_come_and_go(seed: u64, lanes: u64, count: usize, fails: bool) {
    let all = 1..=lanes as usize * count;
    let size = |comm: Handle| {
        let mut plan = Rng(seed ^ (comm as u64) << 20);
        SETS[plan.below(2 * SETS.len() as u64) as usize % SETS.len()].len()
    };
    let mut meetings: HashMap<_, _> = all.map(|comm| (comm, Meeting::new(size(comm)))).collect();
    let last = |set: usize| lanes as usize * count + 1 + set;
    meetings.extend((0..SETS.len()).map(|set| (last(set), Meeting::new(SETS[set].len()))));
    let told = thread::scope(|scope| {
        let meetings = &meetings;
        let of = |rank: usize| {
            let rank = Rank::new(rank, Families::new(FEW));
            let lane = |lane| make_and_free(&rank, meetings, (seed, lane, count), fails);
            let lines: Vec<Line> = thread::scope(|scope| {
                let lane = &lane;
                let threads: Vec<_> =
                    (0..lanes).map(|number| scope.spawn(move || lane(number))).collect();
                threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
            });
            if !fails {
                (0..SETS.len())
                    .for_each(|set| ask_once_more(&rank, meetings, last(set), SETS[set]));
            }
            rank.communicators.retired.reap(false);
            // Two threads may each find room for the last one.
            let most = FEW.in_all + lanes as usize - 1;
            assert!(rank.groups() <= most, "{} groups", rank.groups());
            rank.end();
            lines
        };
        let threads: Vec<_> = (0..RANKS).map(|rank| scope.spawn(move || of(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let mut by_comm: HashMap<Handle, &Vec<Result<String, Reason>>> = HashMap::new();
    for (comm, line) in told.iter().flatten() {
        let first = by_comm.entry(*comm).or_insert(line);
        assert_eq!(*first, line, "of communicator {comm}, seed {seed}");
    }
}

#[test]
fn groups_of_families_come_and_go_alike_on_all_ranks() {
    for seed in 0..8 {
        families_come_and_go(seed, 1, 400, seed % 4 == 3);
    }
}

#[test]
fn so_they_do_with_several_threads() {
    for seed in 10..18 {
        families_come_and_go(seed, 3, 120, seed % 4 == 3);
    }
}

/// Persistent collectives on one communicator are made and freed.
fn pool_comes_and_goes(seed: u64, most: usize, rounds: usize) {
    let meeting = Meeting::new(RANKS);
    let told = alike(RANKS, |rank| {
        let rank = Rank::new(rank, Families::new(FEW));
        let mut communicator = Communicator::new((rank.rank, RANKS), None, None);
        communicator.pool = Pool::new(most);
        let home = rank.communicators.add(1, communicator);
        let mut own = Rng(seed ^ (rank.rank as u64 + 1) << 40);
        let (mut told, mut held) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            let set_up = || {
                let name = meeting.fold("set up", [round as u64], u64::max)[0].to_string();
                let folding = rank.group((rank.rank, RANKS), &name);
                Some(Arc::new(GroupSlot::new(Some(folding))))
            };
            let taken = home.pool.take_or(|free| Ok(meeting.bits_of_all(free)), set_up);
            told.push(taken.as_ref().map_err(|reason| *reason).map(|group| {
                let folding = group.folding();
                folding.as_ref().expect("a group").ground.mpi.clone()
            }));
            if let Ok(group) = taken {
                assert!(!held.iter().any(|other| Arc::ptr_eq(other, &group)), "two have it");
                held.push(group);
            }
            assert!(rank.groups() <= most);
            while held.len() > own.below(most as u64 + 2) as usize {
                let group = held.swap_remove(own.below(held.len() as u64) as usize);
                rank.communicators.give_back(&home, group);
            }
        }
        // Some outlive their communicator.
        drop(home);
        let home = rank.communicators.get(1).unwrap();
        rank.communicators.forget(1);
        for group in held {
            rank.communicators.give_back(&home, group);
        }
        assert_eq!(rank.groups(), 0);
        rank.end();
        told
    });
    let refused = told.iter().filter(|taken| **taken == Err(Reason::Persistent)).count();
    let made: HashSet<_> = told.iter().flatten().collect();
    assert!(made.len() == most && refused < rounds * 9 / 10, "{made:?}, {refused} refused");
}

#[test]
fn groups_of_persistent_collectives_come_and_go_alike_on_all_ranks() {
    for (seed, most) in [(0, 1), (1, 2), (2, 2), (3, 3), (4, 64)] {
        pool_comes_and_goes(seed, most, 1000);
    }
}

/// Blocking calls by the router, with a look at every `every`-th. With `seldom`, one look in so many finds that a host
/// has lost its programs. Returns the number of looks, and of sums of measurements.
fn calls_by_the_router(seed: u64, every: u32, calls: u32, seldom: Option<u64>) -> (usize, u32) {
    let meeting = Meeting::new(RANKS);
    let told = alike(RANKS, |rank| {
        let rank = Rank::new(rank, Families::new(FEW));
        let mut own = Rng(seed ^ (rank.rank as u64 + 1) << 40);
        let mut plan = Rng(seed);
        let new = |call: u32| {
            let mut folding = rank.group((rank.rank, RANKS), &call.to_string());
            folding.look_every = every;
            folding
        };
        let (mut folding, mut told, mut sums_added) = (new(0), Vec::new(), 0);
        for call in 0..calls {
            let mut looks = 0;
            let mut is_lost = |folding: &mut Folding| {
                folding.is_lost_by(|_, lost| {
                    looks += 1;
                    lost[0] |= u64::from(seldom.is_some_and(|seldom| own.below(seldom) == 0));
                    *lost = meeting.fold(&format!("a look at {call}"), *lost, |x, y| x | y);
                })
            };
            let lost = is_lost(&mut folding);
            if lost {
                folding = new(call);
                assert!(!is_lost(&mut folding));
            }
            let collective = COLLECTIVES[plan.below(2) as usize];
            let id = ClassId::new(collective as usize, 8);
            let router = &mut folding.router;
            if let Some(sums) = router.known(id).and_then(|class| class.due()) {
                let what = format!("sums of {collective:?} at {call}");
                router.take_agreed(id, meeting.fold(&what, sums, u64::wrapping_add));
                sums_added += 1;
            }
            let class = router.class(id, Way::Fold(Algorithm::Star));
            let step = class.next();
            if step.timed {
                class.record_time(step.way, 1000 + own.below(4000));
            }
            told.push((looks, lost, step.way));
        }
        drop(folding);
        rank.end();
        (told, sums_added)
    });
    let looks = told.0.iter().filter(|(looks, ..)| *looks > 0).count();
    (looks, told.1)
}

#[test]
fn all_ranks_look_and_choose_at_the_same_calls() {
    for seed in 0..4 {
        let (looks, sums_added) = calls_by_the_router(seed, 8, 8000, None);
        assert!(looks == 1000 && sums_added > 20, "{looks}, {sums_added}");
        let (looks, _) = calls_by_the_router(seed, 8, 8000, Some(100));
        assert!((1000..1100).contains(&looks), "{looks}");
        calls_by_the_router(seed, 1, 100, Some(1000));
        calls_by_the_router(seed, 2, 200, Some(10));
    }
}
