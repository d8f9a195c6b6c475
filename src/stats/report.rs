//! Statistics for people: one line, or all of it.

use std::fmt::Write;

use super::{CachedLine, CallLine, JobReport, PairsLine, Route};

/// Kinds of calls that the line names.
const NAMED: usize = 3;

impl JobReport {
    /// One line that says which calls were folded and which were not.
    pub fn line(&self) -> String {
        let sum = |route| {
            self.collectives.iter().filter(|c| c.route == route).map(|c| c.calls).sum::<u64>()
        };
        let (folded, left) = (sum(Route::Fold), sum(Route::Mpi));
        let all = folded + left;
        if all == 0 {
            return "foldback: no collective was called that it knows".into();
        }
        let mut line =
            format!("foldback: folded {} of {} collective calls", grouped(folded), grouped(all));
        if self.reports < self.ranks {
            let _ = write!(line, " of rank 0");
        }
        if self.hosts.len() > 1 {
            let _ = write!(line, " on {} hosts", self.hosts.len());
        }
        if let Some(why) = &self.no_group {
            let _ = write!(line, "; MPI_COMM_WORLD is left to MPI: {why}");
            return line;
        }
        if left == 0 {
            return line;
        }
        let mut kinds = self.left_to_mpi();
        kinds.sort_by_key(|(_, calls)| std::cmp::Reverse(*calls));
        let named = kinds.iter().take(NAMED).map(|(kind, calls)| match kinds.len() {
            1 => kind.clone(),
            _ => format!("{kind} ({})", grouped(*calls)),
        });
        let named = named.collect::<Vec<_>>().join("; ");
        let _ = write!(line, "; {} left to MPI: {named}", grouped(left));
        let others: u64 = kinds.iter().skip(NAMED).map(|(_, calls)| calls).sum();
        if others > 0 {
            let _ = write!(line, "; others ({})", grouped(others));
        }
        line
    }

    /// "Allreduce of MPI_DOUBLE, 8 B, datatype", and the number of such calls, in whatever form.
    fn left_to_mpi(&self) -> Vec<(String, u64)> {
        let mut kinds: Vec<(String, u64)> = Vec::new();
        for line in self.collectives.iter().filter(|line| line.route == Route::Mpi) {
            let mut kind = line.collective.name().to_owned();
            if let Some(datatype) = &line.datatype {
                let _ = write!(kind, " of {datatype}");
            }
            if line.is_of_many_kinds() {
                kind += " of various types and sizes";
            } else if line.bytes > 0 {
                let _ = write!(kind, ", {}", line.size());
            }
            if let Some(reason) = &line.reason {
                let _ = write!(kind, ", {reason}");
            }
            match kinds.iter_mut().find(|(other, _)| *other == kind) {
                Some((_, calls)) => *calls += line.calls,
                None => kinds.push((kind, line.calls)),
            }
        }
        kinds
    }

    /// Everything, as tables.
    pub fn tables(&self) -> String {
        let mut text = format!("{}\n", self.line());
        let _ = writeln!(text, "foldback {} on {}, {} ranks", self.foldback, self.mpi, self.ranks);
        text.push('\n');
        let mut rows = vec![
            ["collective", "form", "type", "op", "size", "calls", "way"]
                .map(str::to_owned)
                .to_vec(),
        ];
        for line in &self.collectives {
            let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "–".into());
            rows.push(vec![
                line.collective.name().into(),
                format!("{:?}", line.form).to_lowercase(),
                or_dash(&line.datatype),
                or_dash(&line.op),
                line.size(),
                grouped(line.calls),
                line.way(),
            ]);
        }
        text.push_str(&table(&rows, &[4, 5]));
        if let Some(cached) = &self.cached {
            let CachedLine { reductions, reused, bytes, bytes_sent, frames, frames_sent } = *cached;
            let _ = writeln!(
                text,
                "\nNeighbour reductions with kept aggregates: {}; nothing had changed in {}; {} bytes sent in place of {}, {} frames in place of {}",
                grouped(reductions),
                grouped(reused),
                grouped(bytes_sent),
                grouped(bytes),
                grouped(frames_sent),
                grouped(frames),
            );
        }
        if let Some(PairsLine { flushes, added, sent }) = self.pairs {
            let _ = writeln!(
                text,
                "\nPairs by key: {} added, {} records sent to other ranks in {} flushes",
                grouped(added),
                grouped(sent),
                grouped(flushes),
            );
        }
        if !self.routes.is_empty() {
            let mut rows = vec![
                ["collective", "size", "way", "calls of a rank", "measured, µs"]
                    .map(str::to_owned)
                    .to_vec(),
            ];
            for route in &self.routes {
                rows.push(vec![
                    route.collective.clone(),
                    format!("up to {}", bytes(route.up_to_bytes as u64)),
                    route.way.clone(),
                    grouped(route.calls),
                    route.measured(),
                ]);
            }
            let _ = write!(text, "\nChosen by measurement:\n{}", table(&rows, &[1, 3]));
        }
        if !self.hosts.is_empty() {
            let mut rows = vec![
                [
                    "host",
                    "interface",
                    "hook",
                    "fold",
                    "groups",
                    "asked again",
                    "rescued",
                    "folded here",
                ]
                .map(str::to_owned)
                .to_vec(),
            ];
            for host in &self.hosts {
                let folded = host.kernel.get("contributions_folded");
                rows.push(vec![
                    host.host.clone(),
                    host.interface.clone(),
                    host.hook.clone(),
                    host.fold.clone(),
                    grouped(host.groups),
                    grouped(host.asked_again),
                    grouped(host.rescued),
                    grouped(folded.and_then(serde_json::Value::as_u64).unwrap_or(0)),
                ]);
            }
            let _ = write!(text, "\n{}", table(&rows, &[4, 5, 6, 7]));
        }
        text
    }
}

impl CallLine {
    /// "folded", and how; or why it was left to MPI.
    fn way(&self) -> String {
        match &self.reason {
            Some(reason) => format!("MPI: {reason}"),
            None if self.quantized => "folded, quantized".into(),
            None => "folded".into(),
        }
    }

    /// "8 B", if that is the size of all calls; else "up to 64 KiB".
    fn size(&self) -> String {
        if self.bytes == 0 {
            return "–".into();
        }
        if self.is_of_many_kinds() {
            return "various".into();
        }
        if self.calls * self.up_to_bytes == self.bytes {
            return bytes(self.up_to_bytes);
        }
        format!("up to {}", bytes(self.up_to_bytes))
    }
}

/// Powers of two, in the largest unit: "64 KiB".
fn bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut amount = bytes;
    while amount >= 1024 && amount.is_multiple_of(1024) && unit + 1 < units.len() {
        (amount, unit) = (amount / 1024, unit + 1);
    }
    format!("{} {}", grouped(amount), units[unit])
}

/// "1,764"
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Columns one below the other; of those at `right`, the ends.
fn table(rows: &[Vec<String>], right: &[usize]) -> String {
    let width = |text: &str| text.chars().count();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| rows.iter().filter_map(|row| row.get(column)).map(|c| width(c)).max())
        .map(Option::unwrap_or_default)
        .collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let room = " ".repeat(widths[column] - width(cell));
            let (before, after) =
                if right.contains(&column) { (room, String::new()) } else { (String::new(), room) };
            let _ = write!(line, "{before}{cell}{after}  ");
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{COLLECTIVES, Form};

    fn line(reason: Option<&str>, form: Form, up_to_bytes: u64, calls: u64) -> CallLine {
        CallLine {
            collective: COLLECTIVES[0],
            form,
            route: if reason.is_none() { Route::Fold } else { Route::Mpi },
            reason: reason.map(str::to_owned),
            quantized: false,
            datatype: Some("MPI_DOUBLE".into()),
            op: Some("MPI_SUM".into()),
            up_to_bytes,
            calls,
            bytes: calls * up_to_bytes,
        }
    }

    fn job(collectives: Vec<CallLine>) -> JobReport {
        JobReport { collectives, ..JobReport::new("Some MPI", 0, &[]) }
    }

    #[test]
    fn the_line_says_what_was_not_folded_and_why() {
        use Form::{Blocking, Nonblocking};
        let of = |lines: &[CallLine]| job(lines.to_vec()).line();
        assert_eq!(of(&[]), "foldback: no collective was called that it knows");
        let folded = line(None, Blocking, 8, 1240);
        assert_eq!(
            of(std::slice::from_ref(&folded)),
            "foldback: folded 1,240 of 1,240 collective calls"
        );
        let small =
            [line(Some("datatype"), Blocking, 8, 400), line(Some("datatype"), Nonblocking, 8, 41)];
        assert_eq!(
            of(&[std::slice::from_ref(&folded), &small[..]].concat()),
            "foldback: folded 1,240 of 1,681 collective calls; \
             441 left to MPI: Allreduce of MPI_DOUBLE, 8 B, datatype"
        );
        let large = |kib: u64, calls| CallLine {
            bytes: 1,
            ..line(Some("too large"), Blocking, kib << 10, calls)
        };
        let many = [large(1, 9), large(2, 8), large(4, 7), large(1024, 600)];
        assert_eq!(
            of(&[std::slice::from_ref(&folded), &small[..], &many].concat()),
            "foldback: folded 1,240 of 2,305 collective calls; 1,065 left to MPI: \
             Allreduce of MPI_DOUBLE, up to 1 MiB, too large (600); \
             Allreduce of MPI_DOUBLE, 8 B, datatype (441); \
             Allreduce of MPI_DOUBLE, up to 1 KiB, too large (9); others (15)"
        );
    }

    #[test]
    fn calls_that_are_told_apart_no_more_are_said_to_be_of_various_sizes() {
        let rest = CallLine {
            datatype: None,
            op: None,
            bytes: 1_428,
            ..line(Some("too large"), Form::Blocking, 0, 714)
        };
        let job = job(vec![rest]);
        assert_eq!(
            job.line(),
            "foldback: folded 0 of 714 collective calls; \
             714 left to MPI: Allreduce of various types and sizes, too large"
        );
        assert!(job.tables().contains("various"));
    }

    #[test]
    fn a_job_that_could_not_fold_says_why() {
        let mut job = job(vec![line(Some("no group"), Form::Blocking, 8, 5)]);
        job.no_group = Some("all ranks are on one host".into());
        assert_eq!(
            job.line(),
            "foldback: folded 0 of 5 collective calls; \
             MPI_COMM_WORLD is left to MPI: all ranks are on one host"
        );
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [["way", "calls"], ["µ", "1,000"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(table(&rows, &[1]), "way  calls\nµ    1,000\n");
        assert_eq!(table(&rows, &[]), "way  calls\nµ    1,000\n");
        let mut quantized = line(None, Form::Blocking, 8, 5);
        quantized.quantized = true;
        let mut job = job(vec![quantized]);
        let (reductions, reused, bytes, bytes_sent) = (4000, 1, 1 << 20, 24);
        let (frames, frames_sent) = (2000, 1001);
        job.cached =
            Some(CachedLine { reductions, reused, bytes, bytes_sent, frames, frames_sent });
        job.pairs = Some(PairsLine { flushes: 6, added: 10_000, sent: 5001 });
        let tables = job.tables();
        assert!(tables.contains("10,000 added, 5,001 records sent to other ranks in 6 flushes"));
        assert!(
            tables.contains("4,000; nothing had changed in 1; 24 bytes sent in place of 1,048,576, 1,001 frames in place of 2,000")
        );
        assert!(tables.contains("MPI_SUM") && tables.contains("folded, quantized"));
    }
}
