//! Fused operations give the bits of their steps, taken one after the other by the scalar code.

use super::*;
use crate::backend::Gate;
use crate::quant::Format;
use crate::tensor::Bytes;

const INPUTS: usize = 256;

fn noise(seed: u64, len: usize) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| random.f32() * 2.0 - 1.0).collect()
}

fn hidden(seed: u64, rows: usize, columns: usize) -> Hidden {
    Hidden::new(noise(seed, rows * columns), columns)
}

fn norm(columns: usize) -> RmsNorm {
    RmsNorm { weight: noise(9, columns).into(), eps: 1e-5 }
}

/// A layer whose rows are no multiple of what a task takes.
fn layer(format: &str, outputs: usize, biased: bool) -> Linear {
    let format = Format::by_name(format).unwrap();
    let values = noise(outputs as u64, outputs * INPUTS);
    let mut bytes = vec![0; format.bytes_for(values.len()).unwrap()];
    format.encode(&values, &mut bytes).unwrap();
    let weight = Tensor::new("w", vec![outputs, INPUTS], format, Bytes::Owned(bytes.into())).unwrap();
    Linear { weight, bias: biased.then(|| noise(7, outputs).into()) }
}

/// W x + b, a row and a dot at a time.
fn product(layer: &Linear, x: &Hidden, activations: Activations) -> Hidden {
    let mut values = Vec::new();
    let weight = match activations {
        Activations::Quantized => layer.weight.clone(),
        Activations::Float => {
            let values = layer.weight.to_f32().unwrap();
            Tensor::from_f32("w", layer.weight.shape().to_vec(), &values).unwrap()
        }
    };
    let input = weight.format().dot.as_ref().unwrap().input;
    let dot = weight.format().row_dot(Isa::Scalar).unwrap();
    for x in x.values().chunks_exact(x.columns()) {
        let mut blocks = vec![0; input.bytes_for(x.len()).unwrap()];
        input.quantize(Isa::Scalar, x, &mut blocks).unwrap();
        for row in 0..weight.rows() {
            let bias = layer.bias.as_ref().map(|bias| bias[row]);
            let dot = dot.call(weight.row(row), &blocks);
            values.push(bias.map_or(dot, |bias| dot + bias));
        }
    }
    Hidden::new(values, weight.rows())
}

fn each_row(x: &Hidden, work: impl Fn(usize, &mut [f32])) -> Hidden {
    let mut values = x.values().to_vec();
    values.chunks_exact_mut(x.columns()).enumerate().for_each(|(row, values)| work(row, values));
    Hidden::new(values, x.columns())
}

fn assert_same(found: &Hidden, expected: &Hidden, what: &str) {
    assert_eq!((found.rows(), found.columns()), (expected.rows(), expected.columns()), "{what}");
    let same = found.values().iter().zip(expected.values()).all(|(a, b)| a.to_bits() == b.to_bits());
    assert!(same, "{what}");
}

/// Every kind of source and of result, for `rows` tokens.
fn check(cpu: &Cpu, rows: usize) {
    let what = |step: &str| {
        format!("{step}, {rows} rows, {:?}, {} threads, {:?}", cpu.isa, cpu.threads(), cpu.activations)
    };
    let (a, b, norm_in) = (hidden(1, rows, INPUTS), hidden(2, rows, INPUTS), norm(INPUTS));
    let normed = each_row(&a, |row, out| rows::norm(Isa::Scalar, out, a.row(row), &norm_in));
    let bent = each_row(&a, |row, out| rows::gated(Isa::Scalar, out, Gate::Gelu, a.row(row), b.row(row)));
    let layers = [layer("q4_1", 100, true), layer("q6_k", 33, false), layer("f16", 16, true)];
    let all: Vec<&Linear> = layers.iter().collect();
    let cases = [
        ("plain", Source::Plain(&a), &a),
        ("normed", Source::Normed(&a, &norm_in), &normed),
        ("gated", Source::Gated(Gate::Gelu, &a, &b), &bent),
    ];
    for (name, source, read) in cases {
        let mut out = [const { Hidden::empty() }; 3];
        cpu.linear(source, &all, &mut out).unwrap();
        for (layer, out) in layers.iter().zip(&out) {
            let expected = product(layer, read, cpu.activations);
            assert_same(out, &expected, &what(name));

            let norm_out = norm(expected.columns());
            for norm in [None, Some(&norm_out)] {
                let mut x = hidden(3, rows, expected.columns());
                let sum = each_row(&x, |row, x| {
                    let mut y = expected.row(row).to_vec();
                    if let Some(norm) = norm {
                        rows::norm(Isa::Scalar, &mut y, expected.row(row), norm);
                    }
                    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
                });
                cpu.add_linear(&mut x, source, layer, norm).unwrap();
                assert_same(&x, &sum, &what("added"));
            }
        }
    }
}

#[test]
fn fused_operations_give_the_bits_of_their_steps() {
    for activations in [Activations::Quantized, Activations::Float] {
        for isa in Isa::available() {
            for threads in 1..=3 {
                let cpu = Cpu::new(Some(threads), Some(isa), activations).unwrap();
                // Twice: the second time in memory that was used.
                for rows in [1, 3, 70, 1] {
                    check(&cpu, rows);
                }
            }
        }
    }
}

/// A sum of 32 values above 2047, or a value above 65,504, has no half: the row is multiplied smaller.
#[test]
fn large_inputs_give_the_same_products_but_larger() {
    const FACTOR: f32 = (1 << 20) as f32;
    for format in ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_1", "q4_k", "iq4_xs", "mxfp4", "tq2_0"] {
        let layer = layer(format, 8, false);
        for rows in [1, 9] {
            let cpu = Cpu::new(Some(2), None, Activations::Quantized).unwrap();
            let small = hidden(5, rows, INPUTS);
            let large = each_row(&small, |row, values| {
                // All of one sign, and one row as it was.
                values.iter_mut().for_each(|x| *x = x.abs() * if row == 1 { 1.0 } else { FACTOR });
            });
            let small = each_row(&small, |_, values| values.iter_mut().for_each(|x| *x = x.abs()));
            let products = |x: &Hidden| {
                let mut out = [Hidden::empty()];
                cpu.linear(Source::Plain(x), &[&layer], &mut out).unwrap();
                let [out] = out;
                out
            };
            let expected = each_row(&products(&small), |row, values| {
                values.iter_mut().for_each(|x| *x *= if row == 1 { 1.0 } else { FACTOR });
            });
            assert_same(&products(&large), &expected, &format!("{format}, {rows} rows"));
        }
    }
}

#[test]
fn heads_are_normalized_and_rotated_before_they_are_stored() {
    let (heads, dim, pairs, tokens) = (3, 8, 3, 40);
    let norms = [norm(dim), RmsNorm { weight: noise(5, dim).into(), eps: 1e-6 }];
    for (threads, interleaved) in [(1, false), (3, true)] {
        let shape = crate::cache::LayerShape { heads, dim, window: None };
        let kind = CacheType::F32;
        let mut cache = crate::cache::KvCache::new(&[shape], kind, tokens).unwrap();
        let [query, key, value] = [1, 2, 3].map(|seed| hidden(seed, tokens, heads * dim));
        let rotation = Rotation { turns: hidden(4, tokens, 2 * pairs), interleaved };
        let place = |x: &Hidden, norm: &RmsNorm| {
            each_row(x, |row, values| {
                for head in values.chunks_exact_mut(dim) {
                    let whole = head.to_vec();
                    rows::norm(Isa::Scalar, head, &whole, norm);
                    let (cos, sin) = rotation.turns.row(row).split_at(pairs);
                    for pair in 0..pairs {
                        let (i, j) =
                            if interleaved { (2 * pair, 2 * pair + 1) } else { (pair, pair + pairs) };
                        let (x, y) = (head[i], head[j]);
                        head[i] = x * cos[pair] - y * sin[pair];
                        head[j] = x * sin[pair] + y * cos[pair];
                    }
                }
            })
        };
        let (queries, keys) = (place(&query, &norms[0]), place(&key, &norms[1]));
        let cpu = Cpu::new(Some(threads), None, Activations::Quantized).unwrap();
        let mut rows = Heads { query, key, value };
        cpu.append(cache.layer(0), &mut rows, [Some(&norms[0]), Some(&norms[1])], &rotation).unwrap();
        assert_same(&rows.query, &queries, "queries");
        for head in 0..heads {
            let stored = |bytes: &[u8]| -> Vec<f32> {
                bytes.as_chunks::<4>().0.iter().map(|number| f32::from_le_bytes(*number)).collect()
            };
            let column = |x: &Hidden| -> Vec<f32> {
                (0..tokens).flat_map(|row| x.row(row)[head * dim..(head + 1) * dim].to_vec()).collect()
            };
            assert_eq!(stored(cache.layer(0).keys(head, 0..tokens)), column(&keys));
            assert_eq!(stored(cache.layer(0).values(head, 0..tokens)), column(&rows.value));
        }
    }
}
