//! The places of keys, alike on all ranks: pure.

/// A hash with all bits mixed: both halves of products of 128 bits, as in wyhash and foldhash.
#[inline(always)]
fn mix(key: u64) -> u64 {
    let fold = |product: u128| (product >> 64) as u64 ^ product as u64;
    let key = fold(u128::from(key ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93);
    fold(u128::from(key) * 0xff51_afd7_ed55_8ccd)
}

/// The rank, of so many, that has a key, and a number in whose order its keys lie in tables.
#[inline(always)]
pub(super) fn place(key: u64, ranks: usize) -> (usize, u64) {
    let place = u128::from(mix(key)) * ranks as u128;
    ((place >> 64) as usize, place as u64)
}

/// The rank, of so many, that has a key.
#[inline(always)]
pub(super) fn owner(key: u64, ranks: usize) -> usize {
    place(key, ranks).0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of many kinds: steps of any length, floating point, points of a plane, and without an order.
    #[test]
    fn keys_are_spread_evenly() {
        const KEYS: u64 = 400_000;
        type Keys = Box<dyn Fn(u64) -> u64>;
        let mut kinds: Vec<Keys> = vec![
            Box::new(|at| crate::random::Rng(at).next()),
            Box::new(|at| (at as f64).to_bits()),
            Box::new(|at| (at as f64 / 1000.0).to_bits()),
            Box::new(|at| u64::from((at as f32).to_bits())),
            Box::new(|at| at * at),
            Box::new(|at| ((at % 700) << 32) | (at / 700)),
            Box::new(|at| ((at % 632) << 48) | (at / 632)),
            Box::new(|at| u64::MAX - at),
            Box::new(u64::reverse_bits),
            Box::new(u64::swap_bytes),
        ];
        for step in [1_u64, 3, 7, 10, 24, 88, 100, 1000, 999_983] {
            let room = (KEYS * step + 7).leading_zeros();
            kinds.extend(
                (0..=room)
                    .step_by(3)
                    .map(|shift| Box::new(move |at: u64| (at * step + 7) << shift) as Keys),
            );
        }
        for (kind, key) in kinds.iter().enumerate() {
            let mut fine = vec![0u64; 1 << 14];
            (0..KEYS).for_each(|at| fine[(place(key(at), 1).1 >> 50) as usize] += 1);
            let most = fine.into_iter().max();
            assert!(most < Some((3 * KEYS) >> 14), "{kind}: {most:?} keys in one place");
            for ranks in [1, 2, 3, 64] {
                let mut places = vec![[0u64; 16]; ranks];
                for at in 0..KEYS {
                    let (rank, number) = place(key(at), ranks);
                    places[rank][(number >> 60) as usize] += 1;
                }
                let each = KEYS / ranks as u64 / 16;
                let (least, most) = (each * 7 / 10, each * 13 / 10);
                let all = places.as_flattened();
                assert!(all.iter().all(|keys| (least..most).contains(keys)), "{kind}: {all:?}");
            }
        }
    }
}
