//! Hadamard matrices whose order is no power of two: those that MLX has, Sloane's had.12, had.20.will and had.28.will.

/// Row r has bit c where entry (r, c) is -1.
type Rows = &'static [u32];

static H12: Rows = &[0x2, 0xaab, 0x3c8, 0x96e, 0xf20, 0x5ba, 0xc8c, 0x6e6, 0x23c, 0xb96, 0x8f0, 0xe5a];

static H20: Rows = &[
    0x933de, 0x2e3bd, 0x5477b, 0xa0ef7, 0x499ef, 0x637c1, 0xc6ba2, 0x8d764, 0x1aee8, 0x359f0, 0x0fa53,
    0x174a7, 0x26d4e, 0x45e9c, 0x83d39, 0xf7a6d, 0xef4fa, 0xdedd5, 0xbdf8b, 0x7bf36,
];

static H28: Rows = &[
    0xcd69e7e, 0x9ad7c7d, 0x37ab8fb, 0x6d571f7, 0xd8ae3ef, 0xb3587df, 0x66b4f3f, 0xb467f43, 0x6acbe87,
    0xd593d8e, 0xab27b9c, 0x564f7b8, 0xac9aff0, 0x5b31fe1, 0x87fb325, 0x0ff66ca, 0x1decd95, 0x39ddb2a,
    0x71bf654, 0xe17eca9, 0xc2fd9d2, 0xfcf1299, 0xfbe2532, 0xf7c4ae4, 0xef8d549, 0xdf1ea13, 0xbe3d4a6,
    0x7e7a94c,
];

/// The m of n = m 2^k; `None` if there is no matrix.
pub fn factor(n: usize) -> Option<usize> {
    [1, 12, 20, 28].into_iter().find(|m| n.is_multiple_of(*m) && (n / m).is_power_of_two())
}

/// The elements at each place of the `m` runs of `values` become their products with the matrix of order `m`, summed in
/// ascending order.
#[inline(always)]
pub fn mix(values: &mut [f32], m: usize) {
    let rows = match m {
        12 => H12,
        20 => H20,
        28 => H28,
        _ => return,
    };
    let places = values.len() / m;
    for place in 0..places {
        let mut column = [0.0; 28];
        for (run, element) in column[..m].iter_mut().enumerate() {
            *element = values[run * places + place];
        }
        for (run, signs) in rows.iter().enumerate() {
            let mut sum = 0.0;
            for (bit, element) in column[..m].iter().enumerate() {
                sum += if signs >> bit & 1 == 1 { -element } else { *element };
            }
            values[run * places + place] = sum;
        }
    }
}
