//! Tests the invariant of routes. If one rank's arguments are wrong, all others take one way. That rank takes it, too,
//! or the real MPI refuses its call, which changes nothing.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr::null_mut;

use super::{admit, fit, judge, plan};
use crate::call::{COLLECTIVES, Call, Collective, Counts, Form, Message, Side};
use crate::config::{Config, Policy, Sum};
use crate::engine::Pattern;
use crate::gate::{Admitted, Alone, Ends, Facts, Left, Reason};
use crate::leaf::arithmetic::Operator;
use crate::mpi::pmpi::Handle;
use crate::mpi::topology::{Neighbors, Order};
use crate::mpi::types::{Class, Op, Shape, TypeInfo};
use crate::plan::{Case, Fit, Source};
use crate::topology::{Layout, Place};

const IN_PLACE: usize = 0x1_0000;
const INT: Handle = 1;
const SHORT: Handle = 2;
const DOUBLE: Handle = 3;
const PAIR: Handle = 4;
/// Two shorts with a gap between them, made by the program.
const SPREAD: Handle = 10;
const EMPTY: Handle = 11;
/// MPI_DATATYPE_NULL, or one that was freed.
const NO_TYPE: Handle = 12;
const SUM: Handle = 1;
const MINLOC: Handle = 2;
const OWN: Handle = 3;
const NO_OP: Handle = 4;
const MAX: Handle = 5;

/// An MPI that refuses what the standard lets it refuse.
struct Model {
    rank: usize,
}

impl Facts for Model {
    fn in_place(&self) -> usize {
        IN_PLACE
    }

    fn rank(&self, _: Handle) -> usize {
        self.rank
    }

    fn neighbors(&self, _: Handle) -> Option<Neighbors> {
        None
    }

    fn order_of_blocks(&self, _: bool) -> Option<Order> {
        None
    }

    fn takes_count(&self, _: usize) -> bool {
        true
    }

    unsafe fn handle_at(&self, _: *const c_void, _: usize) -> Handle {
        unreachable!("no array of datatypes")
    }

    fn datatype(&self, datatype: Handle) -> Option<TypeInfo> {
        let (class, size) = match datatype {
            INT => (Class::CInteger, 4),
            SHORT => (Class::CInteger, 2),
            DOUBLE => (Class::Real, 8),
            PAIR => (Class::Pair, 8),
            _ => return None,
        };
        Some(TypeInfo { class, size, signed: true, row: 0 })
    }

    fn op(&self, op: Handle) -> Option<Op> {
        match op {
            SUM => Some(Op::Fold(Operator::Sum)),
            MAX => Some(Op::Fold(Operator::Max)),
            MINLOC => Some(Op::MinLoc),
            _ => None,
        }
    }

    fn shape_of_derived(&self, datatype: Handle) -> Option<Shape> {
        match datatype {
            SPREAD => Some(Shape { size: 4, extent: 8, contiguous: false }),
            EMPTY => Some(Shape { size: 0, extent: 0, contiguous: false }),
            _ => None,
        }
    }

    fn are_same(&self, one: Handle, other: Handle) -> bool {
        one == other
    }

    fn accepts(&self, (datatype, _): (Handle, Shape), op: Handle) -> bool {
        match op {
            OWN => true,
            NO_OP => false,
            _ => self.datatype(datatype).zip(self.op(op)).is_some_and(|(t, op)| t.allows(op)),
        }
    }

    fn refuses_aliases(&self) -> bool {
        true
    }

    fn refuses_alias(&self, _: &Call, _: Alone) -> bool {
        true
    }
}

fn address(at: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(at)
}

const SEND: usize = 0x10_0000;
const RECV: usize = 0x80_0000;

/// The arguments of one rank, with arrays of its own.
#[derive(Clone)]
struct Arguments {
    call: Call,
    counts: Option<Vec<i32>>,
    displs: Option<Vec<i32>>,
}

impl Arguments {
    fn call(&self) -> Call {
        let pointer = |array: &Option<Vec<i32>>| {
            array.as_ref().map_or(std::ptr::null(), |array| array.as_ptr().cast::<c_void>())
        };
        let counts = self.call.recv.counts.map(|_| Counts {
            counts: pointer(&self.counts),
            displs: pointer(&self.displs),
            wide: false,
            wide_displs: false,
        });
        Call { recv: Side { counts, ..self.call.recv }, ..self.call }
    }
}

fn is_reduction(collective: Collective) -> bool {
    use Collective as C;
    matches!(
        collective,
        C::Allreduce
            | C::Reduce
            | C::Reduce_scatter
            | C::Reduce_scatter_block
            | C::Scan
            | C::Exscan
    )
}

fn is_rooted(collective: Collective) -> bool {
    use Collective as C;
    matches!(collective, C::Reduce | C::Bcast | C::Gather | C::Scatter)
}

/// A right call of `rank` among `ranks`, of `count` elements.
fn right(
    collective: Collective,
    datatype: Handle,
    op: Handle,
    count: i64,
    ranks: usize,
) -> Arguments {
    use Collective as C;
    let (mut send, mut recv) = (Side::NONE, Side::NONE);
    let each = matches!(collective, C::Allgatherv | C::Reduce_scatter);
    if collective != C::Barrier {
        recv = Side::new(address(RECV), count, datatype);
        if collective != C::Bcast {
            let datatype = if is_reduction(collective) { 0 } else { datatype };
            send = Side::new(address(SEND), count, datatype);
        }
    }
    let array = || (0..ranks as i32).map(|_| count as i32).collect::<Vec<_>>();
    if each {
        let empty = Counts {
            counts: std::ptr::null(),
            displs: std::ptr::null(),
            wide: false,
            wide_displs: false,
        };
        recv = Side { counts: Some(empty), count: 0, ..recv };
    }
    if collective == C::Reduce_scatter {
        send.count = 0;
    }
    let displs = (0..ranks as i32).map(|rank| rank * count as i32).collect();
    Arguments {
        call: Call { collective, send, recv, op, root: 0, comm: 0 },
        counts: each.then(array),
        displs: (collective == C::Allgatherv).then_some(displs),
    }
}

/// Something that one rank may do to its call.
type Change = (&'static str, fn(&mut Arguments, usize));

/// Changes that keep the amount of data, wherever it matters. The second argument: the rank.
const CHANGES: &[Change] = &[
    ("as the others", |_, _| ()),
    ("null to send", |p, _| p.call.send.data = null_mut()),
    ("null to receive", |p, _| p.call.recv.data = null_mut()),
    ("in place, sending", |p, _| p.call.send.data = address(IN_PLACE)),
    ("in place, receiving", |p, _| p.call.recv.data = address(IN_PLACE)),
    ("in place, where the other side is nothing", |p, rank| {
        if p.call.collective == Collective::Gather && rank > 0 {
            p.call.send.data = address(IN_PLACE);
            p.call.recv.count = 0;
        }
        if p.call.collective == Collective::Scatter && rank > 0 {
            p.call.recv.data = address(IN_PLACE);
            p.call.send.count = 0;
        }
    }),
    ("one buffer", |p, _| p.call.send.data = p.call.recv.data),
    ("its own part of the other buffer", |p, rank| {
        p.call.send.data =
            p.call.recv.data.wrapping_byte_add(rank * p.call.recv.count as usize * 4);
    }),
    ("fewer than nothing to send", |p, _| p.call.send.count = -1),
    ("fewer than nothing to receive", |p, _| p.call.recv.count = -1),
    ("no type to send", |p, _| p.call.send.datatype = NO_TYPE),
    ("no type to receive", |p, _| p.call.recv.datatype = NO_TYPE),
    ("another type to send", |p, _| split(p.call.collective, &mut p.call.send)),
    ("another type to receive", |p, _| split(p.call.collective, &mut p.call.recv)),
    ("a type with gaps to send", |p, _| spread(p.call.collective, &mut p.call.send)),
    ("a type with gaps to receive", |p, _| spread(p.call.collective, &mut p.call.recv)),
    ("no op", |p, _| p.call.op = NO_OP),
    ("an op for pairs", |p, _| p.call.op = MINLOC),
    ("a root beyond the last", |p, _| p.call.root = 1000),
    ("a root before the first", |p, _| p.call.root = -1),
    ("no counts", |p, _| p.counts = None),
    ("no displacements", |p, _| p.displs = None),
    ("a negative count of another rank", |p, rank| {
        if let Some(counts) = &mut p.counts {
            counts[usize::from(rank == 0)] = -3;
        }
    }),
];

/// Twice as many elements of half the size. Reductions take one type on all ranks.
fn split(collective: Collective, side: &mut Side) {
    if side.datatype == INT && side.counts.is_none() && !is_reduction(collective) {
        (side.datatype, side.count) = (SHORT, side.count * 2);
    }
}

/// As many of the same size that lie apart.
fn spread(collective: Collective, side: &mut Side) {
    if side.datatype == INT && !is_reduction(collective) {
        side.datatype = SPREAD;
    }
}

/// Whether the MPI refuses the call on this rank before it communicates, by the standard's words on what is
/// significant where (MPI-4.1 chapter 6).
fn mpi_refuses(passed: &Arguments, rank: usize, ranks: usize) -> bool {
    use Collective as C;
    let (model, call) = (Model { rank }, passed.call());
    let Call { collective, send, recv, root, .. } = call;
    if collective == C::Barrier {
        return false;
    }
    if is_rooted(collective) && !(0..ranks as i32).contains(&root) {
        return true;
    }
    let (here, reduces) = (root as usize == rank, is_reduction(collective));
    let in_place = |side: &Side| side.data as usize == IN_PLACE;
    let sends = match collective {
        C::Bcast => false,
        C::Scatter => here,
        _ => true,
    };
    let receives = !matches!(collective, C::Gather | C::Reduce) || here;
    let array =
        |array: &Option<Vec<i32>>| array.as_ref().is_some_and(|a| a.iter().all(|n| *n >= 0));
    let wrong_arrays = match collective {
        C::Allgatherv => !array(&passed.counts) || passed.displs.is_none(),
        C::Reduce_scatter => !array(&passed.counts),
        _ => false,
    };
    let counted = |side: &Side| if side.counts.is_some() { 1 } else { side.count };
    let wrong = |side: &Side, data: bool| {
        let Some(shape) = model.shape(side.datatype) else { return true };
        let null = side.data.is_null() && shape.contiguous && counted(side) > 0;
        counted(side) < 0 || (data && null)
    };
    if wrong_arrays {
        return true;
    }
    if reduces {
        // One description of the data, significant everywhere.
        let Some(shape) = model.shape(recv.datatype) else { return true };
        if counted(&recv) < 0 || !model.accepts((recv.datatype, shape), call.op) {
            return true;
        }
        if counted(&recv) == 0 {
            return false;
        }
        let null = |side: &Side| side.data.is_null() && model.datatype(recv.datatype).is_some();
        let placed = in_place(&send);
        if placed && (!receives || in_place(&recv)) {
            return true;
        }
        let first = collective == C::Exscan && rank == 0;
        let takes = receives && !(first && recv.data.is_null());
        let alias = receives && !recv.data.is_null() && send.data == recv.data && !placed;
        return (!placed && null(&send))
            || (takes && (in_place(&recv) || null(&recv)))
            || (placed && null(&recv))
            || alias;
    }
    let in_place_allowed = match collective {
        C::Gather => here,
        C::Allgather | C::Allgatherv | C::Alltoall => true,
        _ => false,
    };
    let sent_in_place = sends && in_place(&send);
    let received_in_place = receives && in_place(&recv);
    if (sent_in_place && !in_place_allowed)
        || (received_in_place && !(collective == C::Scatter && here))
    {
        return true;
    }
    if (sends && !sent_in_place && wrong(&send, true))
        || (receives && !received_in_place && wrong(&recv, true))
    {
        return true;
    }
    // As one that should have been in place.
    let both = sends && receives && !sent_in_place && !received_in_place;
    let alike = recv.counts.is_none() && send.count == recv.count && send.datatype == recv.datatype;
    if !both || !alike || send.data.is_null() || recv.data.is_null() {
        return false;
    }
    let extent = model.shape(recv.datatype).map_or(0, |shape| shape.extent);
    let part = recv.count as usize * extent.unsigned_abs();
    match collective {
        C::Alltoall => send.data == recv.data,
        C::Scatter => recv.data as usize == send.data as usize + rank * part,
        _ => part > 0 && send.data as usize == recv.data as usize + rank * part,
    }
}

/// A rank's decision on its call.
type Verdict = Result<(Admitted, Ends, Fit), Left>;

/// The part of it that all ranks must have in common.
fn common(verdict: &Verdict) -> Result<(bool, bool, &Fit), Left> {
    let (admitted, _, fit) = verdict.as_ref().map_err(|left| *left)?;
    Ok((admitted.measured, admitted.quantized.is_some(), fit))
}

fn verdict(config: &Config, form: Form, passed: &Arguments, place: &mut Place) -> Verdict {
    let (model, call) = (Model { rank: place.rank }, passed.call());
    let admitted = admit(
        &model,
        config,
        || config.shared.quantize.is_some(),
        form,
        &call,
        &mut Message::default(),
    )?;
    let position = (place.rank, place.layout.ranks());
    // SAFETY: the arrays have an element for each rank; nothing else is looked at.
    let ends = unsafe { judge(&model, &call, admitted.shape(), position)? };
    let fit = fit(Case { call: &call, admitted: &admitted, ends: &ends }, place)?;
    Ok((admitted, ends, fit))
}

/// Layouts of so many ranks: each on a host of its own; and all but the last on one.
fn layouts(ranks: usize) -> Vec<Layout> {
    let names: Vec<String> = (0..ranks).map(|rank| rank.to_string()).collect();
    let apart = Layout::new(names.iter().map(String::as_str));
    let together = Layout::new((0..ranks).map(|rank| if rank + 1 < ranks { "a" } else { "b" }));
    vec![apart, together]
}

/// All ranks make a call, one of them changed. Returns whether that one takes part.
fn check(
    config: &Config,
    form: Form,
    passed: &[Arguments],
    odd: usize,
    layout: &Layout,
    what: &dyn Fn() -> String,
) -> bool {
    let ranks = passed.len();
    let place = |rank| {
        let place = Place::new(layout.clone(), rank, 1408, true).expect("a rank of the layout");
        place.with_parcels(8)
    };
    let verdicts: Vec<_> =
        (0..ranks).map(|rank| verdict(config, form, &passed[rank], &mut place(rank))).collect();
    let others = || (0..ranks).filter(|rank| *rank != odd);
    if others().all(|rank| mpi_refuses(&passed[rank], rank, ranks)) {
        let folds = |rank: usize| verdicts[rank].is_ok();
        assert!(!others().any(folds), "{}: MPI takes it of nobody", what());
        return false;
    }
    let way = common(&verdicts[others().next().expect("two ranks")]);
    for rank in others() {
        assert!(
            !matches!(verdicts[rank], Err(Left::RefusedHere(_))),
            "{}: rank {rank} is right",
            what()
        );
        assert_eq!(common(&verdicts[rank]), way, "{}: rank {rank} goes another way", what());
    }
    let refused = mpi_refuses(&passed[odd], odd, ranks);
    match &verdicts[odd] {
        Err(Left::RefusedHere(_)) => {
            assert!(refused, "{}: MPI takes the call that is left to it to be refused", what());
            return false;
        }
        other => assert_eq!(common(other), way, "{}: the odd rank goes another way", what()),
    }
    if verdicts[odd].is_err() {
        return true;
    }
    assert!(!refused, "{}: MPI refuses what is folded", what());
    let mut first: Option<Pattern> = None;
    for (rank, verdict) in verdicts.into_iter().enumerate() {
        let Ok((admitted, ends, fit)) = verdict else { unreachable!("one way") };
        let image = match &fit {
            Fit::Parts(image) | Fit::LongParts(image) => Some(image.clone()),
            _ => None,
        };
        let call = passed[rank].call();
        let plan = plan(Case { call: &call, admitted: &admitted, ends: &ends }, fit);
        let steps = plan.pattern.clone();
        assert_eq!(
            *first.get_or_insert(steps.clone()),
            steps,
            "{}: rank {rank} plans otherwise",
            what()
        );
        if let Some(image) = image {
            assert_eq!(plan.bytes, image.part(rank).len(), "{}: rank {rank}", what());
        }
        let brings = !matches!(plan.source, Source::Nothing);
        let wanted = match plan.pattern {
            Pattern::Broadcast(root) => root == rank,
            Pattern::Barrier => false,
            _ => true,
        };
        assert_eq!(brings, wanted, "{}: rank {rank} brings something", what());
    }
    true
}

/// The collectives whose size all ranks know. Of the others each rank looks at its own data alone (`super::pairs`).
fn ours() -> impl Iterator<Item = Collective> {
    COLLECTIVES.iter().copied().filter(|collective| !collective.is_of_pairs())
}

/// Every call of the test: collective, type, op and count.
fn calls() -> impl Iterator<Item = (Collective, Handle, Handle, i64)> {
    let kinds = [(INT, SUM), (DOUBLE, SUM), (DOUBLE, MAX), (PAIR, MINLOC), (INT, OWN), (PAIR, SUM)];
    let counts = [0, 1, 50, 1_000, 100_000_000];
    let of = move |collective| {
        kinds.into_iter().flat_map(move |(datatype, op)| {
            counts.into_iter().map(move |count| (collective, datatype, op, count))
        })
    };
    ours().flat_map(of)
}

/// Returns the number of checked calls, and the number of refused ones.
fn check_all(config: &Config, form: Form, layout: &Layout) -> (u32, u32) {
    let (mut checked, mut refused) = (0, 0);
    let ranks = layout.ranks();
    for (collective, datatype, op, count) in calls() {
        let call = right(collective, datatype, op, count, ranks);
        // Every change, alone and with one of the buffers null.
        for (odd, (name, change), (other, second)) in (0..ranks).flat_map(|odd| {
            CHANGES.iter().flat_map(move |one| CHANGES[..3].iter().map(move |two| (odd, one, two)))
        }) {
            let mut passed = vec![call.clone(); ranks];
            change(&mut passed[odd], odd);
            second(&mut passed[odd], odd);
            let what = || {
                format!(
                    "{form:?} {} of {count}, type {datatype}, op {op}, on {:?}, rank {odd}: {name}, {other}",
                    collective.name(),
                    layout.hosts,
                )
            };
            checked += 1;
            refused += u32::from(!check(config, form, &passed, odd, layout, &what));
        }
    }
    (checked, refused)
}

#[test]
fn one_wrong_rank_parts_no_others() {
    let mut config = Config::default();
    let (mut checked, mut refused) = (0, 0);
    let int16 = "int16,min=0".parse().ok();
    for (form, policy, sum, quantize) in [
        (Form::Blocking, Policy::Auto, Sum::Auto, None),
        (Form::Blocking, Policy::Fold, Sum::Exact, int16),
        (Form::Nonblocking, Policy::Fold, Sum::RankOrder, int16),
    ] {
        (config.shared.policy, config.shared.sum) = (policy, sum);
        config.shared.quantize = quantize;
        for layout in [2, 3, 5].into_iter().flat_map(layouts) {
            let (some, alone) = check_all(&config, form, &layout);
            (checked, refused) = (checked + some, refused + alone);
        }
    }
    let share = f64::from(refused) / f64::from(checked);
    assert!((0.1..0.6).contains(&share), "{refused} of {checked} calls were refused");
}

#[test]
fn every_collective_is_folded_or_left_by_all() {
    let config = Config::default();
    for collective in ours() {
        let call = right(collective, INT, SUM, 8, 3);
        let layout = &layouts(3)[0];
        let mut place = Place::new(layout.clone(), 1, 1408, true).expect("a rank");
        let small = verdict(&config, Form::Blocking, &call, &mut place);
        assert!(small.is_ok(), "{}", collective.name());
        if collective != Collective::Barrier {
            let long = right(collective, INT, SUM, 100_000_000, 3);
            let long = verdict(&config, Form::Nonblocking, &long, &mut place);
            assert!(matches!(long, Err(Left::All(Reason::TooLarge))), "{}", collective.name());
            let mut place = place.at_most(1408);
            let small = verdict(&config, Form::Blocking, &call, &mut place);
            assert!(small.is_ok(), "{}", collective.name());
            let two_frames = right(collective, INT, SUM, 400, 3);
            let left = verdict(&config, Form::Blocking, &two_frames, &mut place);
            assert!(matches!(left, Err(Left::All(Reason::TooLarge))), "{}", collective.name());
        }
    }
}
