//! The speed of a core that quantizes numbers in its cache (`cargo bench --bench quantize`): bytes of floating point a
//! second.

use criterion::{Criterion, Throughput};

use foldback::leaf::quantize::Number::{BF16, F16, F32, F64};
use foldback::leaf::quantize::{Quantizer, Rounding, Width};

/// So many that they and their integers stay in the second cache of most CPUs.
const COUNT: usize = 1 << 16;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    for (name, element, size) in
        [("float", F32, 4), ("double", F64, 8), ("binary16", F16, 2), ("bfloat16", BF16, 2)]
    {
        for width in [Width::Int8, Width::Int16, Width::Int32] {
            if width.bytes() > size {
                continue;
            }
            let value = |at: usize| (at as f64 * 0.37).sin();
            let numbers: Vec<u8> = match element {
                F32 => (0..COUNT).flat_map(|at| (value(at) as f32).to_ne_bytes()).collect(),
                F16 => (0..COUNT).flat_map(|at| half(value(at) as f32).to_ne_bytes()).collect(),
                BF16 => (0..COUNT)
                    .flat_map(|at| ((value(at) as f32).to_bits().to_ne_bytes()[2..]).to_vec())
                    .collect(),
                F64 => (0..COUNT).flat_map(|at| value(at).to_ne_bytes()).collect(),
            };
            let quantizer = Quantizer::new(element, width, 256, 8).expect("it serves");
            let mut exponents = vec![0; quantizer.blocks(COUNT)];
            let mut integers = vec![0; COUNT * width.bytes()];
            let mut sums = vec![0; numbers.len()];
            let mut group = criterion.benchmark_group(format!("{name}, {width:?}"));
            group.throughput(Throughput::Bytes((COUNT * size) as u64));
            group.bench_function("exponents", |b| {
                b.iter(|| quantizer.exponents(&numbers, &mut exponents));
            });
            for (name, rounding) in
                [("quantize", Rounding::Nearest), ("quantize by chance", Rounding::Stochastic(1))]
            {
                group.bench_function(name, |b| {
                    b.iter(|| quantizer.quantize(&numbers, &exponents, rounding, &mut integers));
                });
            }
            group.bench_function("dequantize", |b| {
                b.iter(|| quantizer.dequantize(&integers, &exponents, 0, &mut sums));
            });
            group.finish();
        }
    }
    criterion.final_summary();
}

/// Of IEEE 754's binary16, cut.
fn half(number: f32) -> u16 {
    let (sign, bits) = ((number.to_bits() >> 16) as u16 & 0x8000, number.abs().to_bits());
    let normal = (bits >> 13).checked_sub(112 << 10).filter(|half| *half >= 1 << 10);
    sign | normal.unwrap_or((number.abs() * (1 << 24) as f32) as u32) as u16
}
