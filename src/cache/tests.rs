//! What caches keep, whatever the kind.

use super::*;

fn row(position: usize) -> Vec<f32> {
    vec![position as f32; 4]
}

fn filled(window: Option<usize>, tokens: usize) -> KvCache {
    let shape = LayerShape { heads: 2, dim: 2, window };
    let mut cache = KvCache::new(&[shape], CacheType::F32, 8192).expect("memory for a small cache");
    for position in 0..tokens {
        cache.layer(0).append(Isa::Scalar, &row(position), &row(position)).expect("whole rows");
    }
    cache
}

fn visible(cache: &mut KvCache, position: usize) -> Vec<f32> {
    let layer = cache.layer(0);
    let bytes = layer.keys(1, layer.first_visible(position)..position + 1).to_vec();
    bytes.chunks_exact(8).map(|row| f32::from_le_bytes([row[0], row[1], row[2], row[3]])).collect()
}

#[test]
fn a_window_keeps_what_its_queries_see() {
    let mut cache = filled(Some(3), 5000);
    assert_eq!(visible(&mut cache, 4999), [4997.0, 4998.0, 4999.0]);
    assert!(cache.layer(0).keys.len() <= 3 + 2 * WINDOW_SLACK);
}

#[test]
fn truncating_steps_back_or_starts_over() {
    let mut cache = filled(Some(3), 5000);
    assert_eq!(cache.truncate(4900), 4900);
    assert_eq!(cache.len(), 4900);
    cache.layer(0).append(Isa::Scalar, &row(7), &row(7)).expect("whole rows");
    assert_eq!(visible(&mut cache, 4900), [4898.0, 4899.0, 7.0]);
    assert_eq!(cache.truncate(100), 0);
    assert!(cache.is_empty());
    let mut full = filled(None, 100);
    assert_eq!(full.truncate(40), 40);
    assert_eq!(visible(&mut full, 39).len(), 40);
}

/// Rows of a layer as numbers, before they are stored: the model that a cache is compared with.
struct Dense {
    shape: LayerShape,
    rows: Vec<[Vec<f32>; 2]>,
}

impl Dense {
    /// Rows that a store makes of the keys (`side` 0) or values (1) of `head`.
    fn stored(&self, store: Store, side: usize, head: usize) -> Vec<u8> {
        let dim = self.shape.dim;
        let rows = self.rows.iter().flat_map(|row| {
            let mut row = row[side][head * dim..(head + 1) * dim].to_vec();
            if store.turned {
                crate::quant::turbo::rotate(Isa::Scalar, &mut row);
            }
            let mut bytes = vec![0; store.row_bytes(dim).expect("a head that fits")];
            store.format.quantize(Isa::Scalar, &row, &mut bytes).expect("whole blocks");
            bytes
        });
        rows.collect()
    }

    fn check(&self, layer: &LayerCache, what: &str) {
        let tokens = self.rows.len();
        assert_eq!(layer.len(), tokens, "{what}");
        for head in 0..self.shape.heads {
            let keys = layer.keys(head, 0..tokens);
            assert!(keys == self.stored(layer.key_store(), 0, head), "{what}: keys of head {head}");
            let values = layer.values(head, 0..tokens);
            assert!(values == self.stored(layer.value_store(), 1, head), "{what}: values of head {head}");
        }
    }
}

fn owned(state: &LayerState<Vec<&[u8]>>) -> LayerState<Vec<u8>> {
    let LayerState { first, len, ref keys, ref values } = *state;
    LayerState { first, len, keys: keys.concat(), values: values.concat() }
}

fn borrowed(state: &LayerState<Vec<u8>>) -> LayerState<&[u8]> {
    LayerState { first: state.first, len: state.len, keys: &state.keys, values: &state.values }
}

fn choices() -> impl Iterator<Item = CacheType> {
    CacheType::all().chain(["q8_0/turbo3", "turbo:k4v2", "f16/q4_0"].map(|name| name.parse().expect(name)))
}

/// Appending, stepping back, snapshots and restoring in any order keep exactly the bytes of each row alone. Keys and
/// values have scales of their own, as has each row and head: whatever is swapped or stale differs.
#[test]
fn any_sequence_of_steps_keeps_the_rows_of_a_dense_model() {
    let shape = LayerShape { heads: 2, dim: 64, window: None };
    for kind in choices() {
        let mut random = fastrand::Rng::with_seed(5);
        let mut cache = KvCache::new(&[shape], kind, 60).expect("memory");
        let mut dense = Dense { shape, rows: Vec::new() };
        let mut snapshot = None;
        for step in 0..60 {
            let what = format!("{kind} step {step}");
            match random.u8(0..4) {
                0 | 1 => {
                    let tokens = random.usize(0..(61 - dense.rows.len()).min(7));
                    let mut side = |scale: f32| -> Vec<f32> {
                        let scale = scale * (1.0 + random.f32());
                        (0..tokens * 128)
                            .map(|i| (random.f32() - 0.3) * scale * (1 + i / 64 % 2) as f32)
                            .collect()
                    };
                    let (keys, values) = (side(3.0), side(0.2));
                    cache.layer(0).append(Isa::detect().expect("one"), &keys, &values).expect("whole rows");
                    let rows = keys.chunks_exact(128).zip(values.chunks_exact(128));
                    dense.rows.extend(rows.map(|(k, v)| [k.to_vec(), v.to_vec()]));
                }
                2 => {
                    let kept = random.usize(0..=dense.rows.len());
                    assert_eq!(cache.truncate(kept), kept, "{what}");
                    dense.rows.truncate(kept);
                }
                _ => match snapshot.take() {
                    None => {
                        let state = owned(&cache.layer(0).state().expect("rows are here"));
                        snapshot = Some((state, dense.rows.clone()));
                    }
                    Some((state, rows)) => {
                        cache.layer(0).restore(&borrowed(&state)).expect("its own state");
                        dense.rows = rows;
                    }
                },
            }
            dense.check(cache.layer(0), &what);
        }
    }
}

#[test]
fn states_of_other_layers_are_refused() {
    let shape = LayerShape { heads: 2, dim: 64, window: None };
    let mut cache = KvCache::new(&[shape], CacheType::TURBO, 8).expect("memory");
    cache.layer(0).append(Isa::Scalar, &[1.0; 256], &[2.0; 256]).expect("whole rows");
    let good = owned(&cache.layer(0).state().expect("rows are here"));
    let mut bad = vec![
        LayerState { len: 3, ..good.clone() },
        LayerState { first: 1, ..good.clone() },
        LayerState { first: 3, ..good.clone() },
        LayerState { len: usize::MAX, ..good.clone() },
        LayerState { keys: good.values.clone(), values: good.keys.clone(), ..good.clone() },
    ];
    bad.push(LayerState { values: good.values[1..].to_vec(), ..good.clone() });
    for bad in &bad {
        let error = cache.layer(0).restore(&borrowed(bad)).expect_err("refused").to_string();
        assert!(error.contains("are no rows of turbo:k8v3"), "{error}");
        assert_eq!(owned(&cache.layer(0).state().expect("rows are here")), good);
    }
    cache.layer(0).restore(&borrowed(&good)).expect("its own state");
    // More tokens than the context holds.
    let more = LayerState { first: 0, len: 9, keys: vec![0; 9 * 144], values: vec![0; 9 * 56] };
    assert!(cache.layer(0).restore(&borrowed(&more)).is_err());
}

/// A dense cache that is converted holds what a cache of that kind would have held, up to the rounding of the source.
#[test]
fn a_filled_cache_is_converted_in_place() {
    let shapes = [None, Some(4)].map(|window| LayerShape { heads: 2, dim: 64, window });
    let mut random = fastrand::Rng::with_seed(9);
    let rows: Vec<f32> = (0..10 * 128).map(|_| random.f32() - 0.5).collect();
    let fill = |kind| {
        let mut cache = KvCache::new(&shapes, kind, 20).expect("memory");
        (0..2).for_each(|i| cache.layer(i).append(Isa::Scalar, &rows, &rows).expect("whole rows"));
        cache
    };
    for kind in choices() {
        let (mut converted, mut expected) = (fill(CacheType::F32), fill(kind));
        let isa = Isa::detect().expect("one");
        converted.convert(kind, |_, layer| layer.convert(isa, kind)).expect("heads that fit");
        assert_eq!((converted.kind(), converted.len()), (kind, 10));
        assert_eq!(converted.bytes(), expected.bytes(), "{kind}");
        for index in 0..2 {
            let (found, expected) = (converted.layer(index), expected.layer(index));
            assert_eq!(found.kind(), expected.kind());
            let state = |layer: &LayerCache| owned(&layer.state().expect("rows are here"));
            assert!(state(found) == state(expected), "{kind} layer {index}");
        }
    }
}

#[test]
fn a_cache_comes_back_from_a_snapshot_of_another_kind() {
    let shapes = [None, Some(4)].map(|window| LayerShape { heads: 2, dim: 64, window });
    let filled = |kind: CacheType, value: f32| {
        let mut cache = KvCache::new(&shapes, kind, 20).expect("memory");
        (0..2).for_each(|i| {
            cache.layer(i).append(Isa::Scalar, &[value; 640], &[-value; 640]).expect("whole rows");
        });
        cache
    };
    let source = filled(CacheType::TURBO, 0.0);
    let stored = |_, layer: &LayerCache| {
        let LayerState { first, len, keys, values } = layer.state().expect("rows are here");
        Ok(LayerState { first, len, keys: keys.concat(), values: values.concat() })
    };
    let store = |_, layer: &mut LayerCache, state: &LayerState<&[u8]>| layer.restore(state);
    let snapshot = source.snapshot(stored).expect("rows are here");
    let mut cache = filled(CacheType::F16, 1.5);
    cache.restore(Isa::Scalar, &snapshot, store).expect("the same layers");
    assert_eq!((cache.kind(), cache.len()), (CacheType::TURBO, 5));
    assert_eq!(cache.snapshot(stored).expect("rows are here"), snapshot);
    let mut other = KvCache::new(&shapes[..1], CacheType::F16, 20).expect("memory");
    assert!(other.restore(Isa::Scalar, &snapshot, store).is_err());
    assert!(other.is_empty());
}

#[test]
fn windows_stay_dense() {
    let shape = |window| LayerShape { heads: 1, dim: 128, window };
    let cache = KvCache::new(&[shape(None), shape(Some(512))], CacheType::TURBO, 8192).expect("memory");
    let kinds: Vec<_> = cache.layers().iter().map(|layer| layer.kind().to_string()).collect();
    assert_eq!(kinds, ["turbo:k8v3", "f16"]);
    assert_eq!((cache.dense_layers(), cache.token_bytes()), (1, 200));
    assert_eq!(cache.bytes(), 8192 * 200 + (512 + 2 * 512) * 512);
    let f32 = KvCache::new(&[shape(Some(512))], CacheType::F32, 8192).expect("memory");
    assert_eq!((f32.layers()[0].kind(), f32.dense_layers()), (CacheType::F32, 0));
}
