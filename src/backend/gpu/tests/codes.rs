//! Codes that a device makes of inputs are the CPU's, bit for bit.

use std::sync::Arc;

use crate::backend::cpu::Activations;
use crate::backend::gpu::product::Prepared;
use crate::backend::gpu::{Device, Gpu, Reach, adapters};
use crate::backend::{Backend, Hidden, Source};
use crate::quant::{Format, q8_0, q8_k};

const COLUMNS: usize = 1024;

/// Groups of all sizes, halves that are ties, the largest magnitude with both signs, and zeros.
fn rows() -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(1);
    let mut values: Vec<f32> = (0..64 * COLUMNS).map(|_| random.f32() * 2.0 - 1.0).collect();
    for (row, values) in values.chunks_mut(COLUMNS).enumerate() {
        for value in values.iter_mut() {
            *value *= 2.0f32.powi(row as i32 * 3 - 90);
            if row % 4 == 1 {
                *value = (*value * 254.0 / 2.0f32.powi(row as i32 * 3 - 90)).round() / 2.0;
            }
        }
        if row % 4 == 1 {
            values.chunks_mut(32).enumerate().for_each(|(i, group)| group[i % 32] = [127.0, -127.0][i % 2]);
        }
    }
    values[..96].fill(0.0);
    values
}

/// Codes of `format`'s blocks on the CPU.
fn codes(format: &Format, values: &[f32]) -> Vec<i8> {
    let mut bytes = vec![0; format.bytes_for(values.len()).expect("whole blocks")];
    format.encode(values, &mut bytes).expect("a format of inputs");
    // Behind the scale: an f16, an f32 in Q8_K.
    let at = if format.block_len == 256 { 4 } else { 2 };
    let blocks = bytes.chunks_exact(format.block_bytes);
    blocks.flat_map(|block| bytemuck::cast_slice(&block[at..at + format.block_len]).to_vec()).collect()
}

#[test]
fn codes_are_those_of_the_cpu() {
    let values = rows();
    for adapter in adapters() {
        for reach in [Reach::Floor, Reach::Adapter] {
            let device = Arc::new(Device::open(&adapter, reach).expect("a device"));
            let gpu = Gpu::new(Arc::clone(&device), Activations::Quantized);
            let x = gpu.hold(Hidden::new(values.clone(), COLUMNS)).expect("a buffer");
            let inputs = gpu.inputs(Source::Plain(&x)).expect("rows on the device");
            for format in [&q8_0::FORMAT, &q8_k::FORMAT] {
                let group = format.block_len as u32;
                let prepared = gpu.prepare(&inputs, values.len() / COLUMNS, COLUMNS, Some(group));
                let Prepared::Int8(found, _) = prepared else { panic!("codes were asked for") };
                gpu.flush().expect("kernels that compile");
                let found = device.read(&found.buffer, 0, values.len() as u64).expect("codes");
                let found: &[i8] = bytemuck::cast_slice(&found);
                let expected = codes(format, &values);
                let wrong = (0..values.len()).find(|&i| found[i] != expected[i]);
                let show = |i: usize| (i, values[i], found[i], expected[i]);
                assert_eq!(wrong.map(show), None, "{} on {}", format.name, device.name());
            }
        }
    }
}
