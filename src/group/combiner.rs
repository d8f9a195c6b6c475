//! Pairs of keys and values, which the kernels of their owners combine.

use std::time::Instant;

use super::Group;
use crate::bindings::{FB_FRAME_PAIRS, fb_pair};
use crate::leaf::arithmetic::{Element, Operator};
use crate::wire::table::{MappedTable, Table};
use crate::wire::{Delivery, Means, Sheaf, Stream, Transport};

/// Payload of a full frame of pairs.
const FRAME_BYTES: u16 = (FB_FRAME_PAIRS as usize * size_of::<fb_pair>()) as u16;

/// A leader's table, and the numbers of its frames.
pub(super) struct Combiner {
    table: Table<MappedTable>,
    stream: Stream,
}

impl Group {
    /// Whether this host's kernel combines pairs for it.
    pub fn combines(&self) -> bool {
        self.combiner.is_some()
    }

    /// Has this host's kernel combine pairs, if it can: with programs, one rank on each host, and frames of the usual
    /// length. Collective: no rank sends pairs before all know that all kernels do.
    pub fn make_combiner(&mut self) -> bool {
        let place = &self.engine.place;
        let is_alone = place.layout.hosts.len() == place.layout.ranks();
        if self.combiner.is_some() || !is_alone || place.chunk_bytes < FRAME_BYTES {
            return self.combiner.is_some();
        }
        let served = self.member.as_ref().and_then(|member| member.served.as_ref());
        let (Some(served), Some(wire)) = (served, self.engine.wire_mut()) else { return false };
        let made = served.client.create_table(served.slot).map_err(|error| error.to_string());
        let mapped =
            made.and_then(|table| MappedTable::new(&table).map_err(|error| error.to_string()));
        match mapped {
            Ok(memory) => {
                wire.transport.set_table(Box::new(memory.clone()));
                let table = Table::new(memory);
                let stream = Stream::new(wire.identity().members, &table);
                self.combiner = Some(Combiner { table, stream });
                true
            }
            Err(error) => {
                log::info!("pairs are not combined by this host's kernel: {error}");
                false
            }
        }
    }

    /// Sends pairs to their owners, whose values are words that `op` combines as `element`, and takes what comes:
    /// `frames` of each member. Appends the pairs of this host to `into`. `wait` is called
    /// now and then, and told whether something has moved. All
    /// members do that at once, after all are known to have the [means](Self::make_combiner).
    pub fn combine(
        &mut self,
        (op, element): (Operator, Element),
        (words, sheaves): (&[u64], &[Sheaf]),
        frames: impl IntoIterator<Item = u64>,
        into: &mut Vec<u64>,
        mut wait: impl FnMut(bool),
    ) {
        let wire = self.engine.wire_mut().expect("one rank on each host");
        let Combiner { table, stream } = self.combiner.as_mut().expect("made before");
        let members = wire.identity().members;
        stream.expect(frames);
        let mut delivery = Delivery::new(op, element, sheaves, members, stream);
        let (identity, transport) = wire.way();
        let mut means = Means { identity, transport, stream, table };
        let mut is_sent = false;
        loop {
            let before = (delivery.open(), into.len());
            is_sent = is_sent || delivery.poll(words, &mut means, Instant::now());
            means.table.take(false, into);
            means.transport.take_in();
            if is_sent && means.stream.is_complete(means.table) {
                break;
            }
            wait((delivery.open(), into.len()) != before);
        }
        stream.end(table, into);
    }
}
