//! Quantized sums (`FOLDBACK_QUANTIZE`): as close as docs/using/quantization.md says, with the same bits on all
//! ranks, also on a network that loses frames. Other sums are not quantized.

use serde_json::Value;

use crate::harness::{Job, Mpi, Outcome, turn};

fn job(mpi: Mpi, hosts: u32, quantize: &str) -> Job {
    Job::new(mpi, hosts).env("FOLDBACK_QUANTIZE", quantize).env("FOLDBACK_MAX_BYTES", "")
}

const COLLECTIVES: [&str; 4] = ["Allreduce", "Reduce", "Reduce_scatter", "Reduce_scatter_block"];

/// The number of values that are not the nearest to their sum.
fn off(outcome: &Outcome, calls: u32) -> u64 {
    let said = outcome.stdout.split(&format!("quantized: {calls} calls ok, ")).nth(1);
    let number = said.and_then(|said| said.split(' ').next()?.parse().ok());
    number.unwrap_or_else(|| panic!("{}\n{}", outcome.stdout, outcome.stderr))
}

#[test]
fn sums_are_as_close_as_is_said() {
    let _turn = turn();
    for (mpi, hosts, ranks, quantize, arguments) in [
        (Mpi::Open, 2, 1, "int16,min=0", ["--bits", "16", "--block", "256"]),
        (Mpi::Open, 4, 1, "fixed32,min=0", ["--bits", "32", "--block", "256"]),
        (Mpi::Open, 4, 1, "int8,min=0,block=64", ["--bits", "8", "--block", "64"]),
        (Mpi::Open, 3, 1, "int8,min=0,stochastic=3", ["--bits", "8", "--halves", "2"]),
        (Mpi::Open, 3, 2, "int16,min=0,block=7", ["--bits", "16", "--block", "7"]),
        (Mpi::Mpich, 3, 1, "fixed32,min=0,block=1000", ["--bits", "32", "--block", "1000"]),
        (Mpi::Mpich5, 2, 2, "int16,min=0", ["--bits", "16", "--block", "256"]),
    ] {
        if !mpi.installed() {
            continue;
        }
        let job = job(mpi, hosts, quantize).ranks_per_host(ranks);
        let outcome = job.run("quantized", &[&["--calls", "100"], &arguments[..]].concat());
        assert!(off(&outcome, 100) > 0, "nothing was quantized");
        outcome.assert_folded(&COLLECTIVES);
        // Only what is not finite, and long.
        let left: u64 = COLLECTIVES.iter().map(|name| outcome.calls(name, "mpi")).sum();
        assert!(left == outcome.calls_for("too large") && left < 40 * u64::from(hosts * ranks));
        for name in COLLECTIVES {
            assert!(outcome.quantized(name) > 0, "no {name} was quantized: {:#}", outcome.stats);
        }
    }
}

/// Of more than a MiB of integers one part is summed after the other, to the same.
#[test]
fn long_sums_are_made_in_parts() {
    let _turn = turn();
    for (mpi, quantize, arguments) in [
        (Mpi::Open, "fixed32,min=0,block=1000", ["--bits", "32", "--block", "1000"]),
        (Mpi::Mpich, "int16,min=0", ["--bits", "16", "--block", "256"]),
    ] {
        let long = ["--calls", "40", "--longest", "1500000"];
        let outcome = job(mpi, 3, quantize).run("quantized", &[long, arguments].concat());
        assert!(off(&outcome, 40) > 0, "nothing was quantized");
    }
    // The rounding errors of each part come back to it.
    let carry = "int16,min=0,error_feedback,stochastic";
    let long = ["--calls", "3", "--times", "5", "--step", "400000", "--halves", "2"];
    assert!(off(&job(Mpi::Open, 3, carry).run("quantized", &long), 3) > 0);
}

/// Integers of more than 64 KiB are MPI's to sum, until it is known what is faster; with the same bits on all ranks as
/// ever.
#[test]
fn integers_may_be_summed_by_mpi() {
    let _turn = turn();
    for (mpi, quantize, bits) in [
        (Mpi::Open, "int16,min=0", "16"),
        (Mpi::Mpich5, "fixed32,min=0", "32"),
        (Mpi::Mpich5Abi, "int8,min=0", "8"),
    ] {
        if !mpi.installed() {
            continue;
        }
        let job = job(mpi, 3, quantize).env("FOLDBACK_ROUTE", "auto");
        let outcome =
            job.run("quantized", &["--calls", "60", "--longest", "200000", "--bits", bits]);
        assert!(off(&outcome, 60) > 0, "nothing was quantized");
        let by_mpi = |route: &&Value| route["way"] == "mpi" && route["up_to_bytes"] == 131_072;
        assert!(outcome.routes("Allreduce").iter().any(by_mpi), "{:#}", outcome.stats["routes"]);
        for name in COLLECTIVES {
            assert!(outcome.quantized(name) > 0, "no {name} was quantized: {:#}", outcome.stats);
        }
    }
}

/// Non-blocking and persistent calls give the same bits as calls that block. Other calls on the communicator do not
/// overtake them.
#[test]
fn calls_that_do_not_block_are_quantized_too() {
    let _turn = turn();
    let any = |job: Job, calls: &str, more: &[&str]| {
        job.run("quantized", &[&["--form", "3", "--calls", calls], more].concat())
    };
    for mpi in Mpi::EVERY.into_iter().filter(|mpi| mpi.installed()) {
        let outcome = any(job(mpi, 3, "int16,min=0"), "90", &[]);
        assert!(off(&outcome, 90) > 0, "nothing was quantized");
        for form in ["Blocking", "Nonblocking", "Persistent"] {
            for name in COLLECTIVES {
                let is_it = |line: &&Value| {
                    line["collective"] == name && line["form"] == form && line["quantized"] == true
                };
                assert!(
                    outcome.lines().any(|line| is_it(&line)),
                    "{form} {name}: {:#}",
                    outcome.stats
                );
            }
        }
        // Also numbers that are not finite.
        let left = |line: &&Value| line["form"] != "Blocking" && !line["reason"].is_null();
        assert!(!outcome.lines().any(|line| left(&line)), "{:#}", outcome.stats);
    }
    let long = ["--longest", "1500000", "--bits", "8"];
    let outcome = any(job(Mpi::Open, 2, "int8,min=0").ranks_per_host(2), "24", &long);
    assert!(off(&outcome, 24) > 0, "nothing was quantized");
    let faults = ["--loss", "2%", "--dup", "2%", "--reorder", "2%", "--corrupt", "2%"];
    let lossy = job(Mpi::Mpich, 3, "int16,min=0").option(&faults).option(&["--faults-on", "udp"]);
    assert!(off(&any(lossy, "60", &[]), 60) > 0, "nothing was quantized");
}

/// A request has memory of its own for errors, and a communicator has some for its calls.
#[test]
fn errors_are_carried_over_by_requests() {
    let _turn = turn();
    for form in ["1", "2"] {
        let arguments = ["--calls", "40", "--times", "10", "--bits", "8", "--form", form];
        let outcome = job(Mpi::Open, 3, "int8,min=0,error_feedback").run("quantized", &arguments);
        assert!(off(&outcome, 40) > 0, "nothing was quantized");
    }
}

/// Numbers that are not finite are then summed exactly, in the group.
#[test]
fn sums_that_are_exact_else_are_quantized_in_all_forms() {
    let _turn = turn();
    let job = job(Mpi::Open, 2, "int16,min=0").env("FOLDBACK_SUM", "exact");
    let outcome = job.run("quantized", &["--calls", "60", "--form", "3"]);
    assert!(off(&outcome, 60) > 0, "nothing was quantized");
    let quantized = |form: &str| {
        let lines = || outcome.lines().filter(|line| line["form"] == form);
        assert!(lines().all(|line| line["reason"].is_null()), "{:#}", outcome.stats);
        lines().filter(|line| line["quantized"] == true).count()
    };
    assert!(["Blocking", "Nonblocking", "Persistent"].map(quantized).iter().all(|n| *n > 0));
}

/// Of messages that are not of one length, one may be MPI's to sum and the other not: ranks must not wait for each
/// other.
#[test]
fn lengths_that_differ_are_told_before_ways_are_chosen() {
    let _turn = turn();
    let job = job(Mpi::Open, 3, "int16,min=0,block=1000").env("FOLDBACK_ROUTE", "auto");
    let said = job.run_to_failure("lengths", &["--long", "--floats", "32768"]);
    assert!(said.contains("they would wait for ever"), "{said}");
}

/// Numbers of 16 bits, of MPIs that name such types: in fewer bits than that, or as many, or not at all.
#[test]
fn halves_are_quantized_too() {
    let _turn = turn();
    for (mpi, shorts) in [(Mpi::Open5, "1"), (Mpi::Mpich5, "2"), (Mpi::Intel, "1")] {
        if !mpi.installed() {
            continue;
        }
        for (quantize, bits) in [("int8,min=0", "8"), ("int16,min=0", "16")] {
            let arguments = ["--calls", "100", "--shorts", shorts, "--bits", bits];
            let outcome = job(mpi, 3, quantize).run("quantized", &arguments);
            assert!(off(&outcome, 100) > 0, "nothing was quantized");
            for datatype in ["MPIX_C_FLOAT16", "MPIX_BFLOAT16"].iter().take(shorts.parse().unwrap())
            {
                let is_it =
                    |line: &&Value| line["datatype"] == *datatype && line["quantized"] == true;
                assert!(outcome.lines().any(|line| is_it(&line)), "{:#}", outcome.stats);
            }
        }
        let longer = job(mpi, 2, "fixed32,min=0").env("FOLDBACK_LOG", "warn");
        let outcome =
            longer.run("quantized", &["--calls", "20", "--shorts", shorts, "--bits", "32"]);
        let line = "integers of 32 bits are longer than the numbers, whose sums are left to MPI";
        assert_eq!(outcome.stderr.matches(line).count(), 1, "{}", outcome.stderr);
    }
}

#[test]
fn frames_may_be_lost() {
    let _turn = turn();
    let faults = ["--loss", "2%", "--dup", "2%", "--reorder", "2%", "--corrupt", "2%"];
    let job = job(Mpi::Open, 3, "int16,min=0").option(&faults).option(&["--faults-on", "udp"]);
    let outcome = job.run("quantized", &["--calls", "60"]);
    assert!(off(&outcome, 60) > 0);
    assert!(outcome.kernel("drop_forged") > 0, "{:#}", outcome.stats);
}

/// Long enough ones are quantized, and short ones exact.
#[test]
fn short_sums_stay_exact() {
    let _turn = turn();
    let exact = |min: &str| {
        let job = job(Mpi::Open, 2, min).env("FOLDBACK_SUM", "exact");
        off(&job.run("quantized", &["--calls", "60", "--longest", "4000"]), 60)
    };
    assert_eq!(exact("int16"), 0);
    assert!(exact("int16,min=1000") > 0);
}

#[test]
fn nonsense_is_told_in_a_line() {
    let _turn = turn();
    let job = job(Mpi::Open, 2, "int4").env("FOLDBACK_LOG", "warn");
    let outcome = job.run("counted", &[]);
    let wrong = "FOLDBACK_QUANTIZE=int4: off, or fixed32, int16 or int8, with ,block=N ,min=BYTES";
    assert!(outcome.stderr.contains(wrong), "{}", outcome.stderr);
}

/// One communicator's own settings, by hints and by functions.
#[test]
fn hints_are_for_one_communicator() {
    let _turn = turn();
    for mpi in Mpi::EVERY.into_iter().filter(|mpi| mpi.installed()) {
        let outcome = Job::new(mpi, 3).env("FOLDBACK_LOG", "warn").run("hints", &[]);
        outcome.assert_prints("hints: all ok");
        let told = |line: &str| outcome.stderr.matches(line).count();
        // Twice by hints, once by the function; and nonsense the other way round.
        assert_eq!(told("foldback_quantize: ranks do not ask for the same"), 3);
        assert_eq!(told("foldback_quantize=int4: off, or fixed32, int16 or int8"), 1);
        assert_eq!(told(": off, or fixed32, int16 or int8"), 3, "{}", outcome.stderr);
    }
}

/// Of 127 none of 64 ranks can have a share of 2.
#[test]
fn too_many_ranks_are_told_in_a_line() {
    let _turn = turn();
    let job = job(Mpi::Open, 2, "int8,min=0").ranks_per_host(32).env("FOLDBACK_LOG", "warn");
    let outcome = job.run("quantized", &["--calls", "5", "--bits", "8", "--longest", "100"]);
    off(&outcome, 5);
    let line = "8 bits cannot hold a sum of 64 ranks, so it is not quantized";
    assert_eq!(outcome.stderr.matches(line).count(), 1, "{}", outcome.stderr);
}

/// Sums that are made ten times are together no further off than one.
#[test]
fn errors_are_carried_over() {
    let _turn = turn();
    for (words, bits, halves) in [
        ("int8,min=0,error_feedback", "8", "1"),
        ("int16,min=0,error_feedback,stochastic", "16", "2"),
    ] {
        let arguments = ["--calls", "40", "--times", "10", "--bits", bits, "--halves", halves];
        let outcome = job(Mpi::Open, 3, words).run("quantized", &arguments);
        assert!(off(&outcome, 40) > 0, "nothing was quantized");
        outcome.assert_folded(&["Allreduce"]);
    }
    // On other communicators, which took over the groups of earlier ones, nothing is.
    let arguments = ["--calls", "40", "--times", "3", "--bits", "8", "--halves", "4", "--afresh"];
    let outcome = job(Mpi::Open, 3, "int8,min=0,error_feedback").run("quantized", &arguments);
    assert!(off(&outcome, 40) > 0, "nothing was quantized");
    // Without it they are: the bound is one that a job can miss.
    let arguments = ["--calls", "40", "--times", "10", "--bits", "8"];
    let said = job(Mpi::Open, 3, "int8,min=0").run_to_failure("quantized", &arguments);
    assert!(said.contains("off"), "{said}");
}
