//! Goldens of MLX as rows of `FORMATS`: codes, scales and biases of a matrix, put together by a naive reading of the layout.
#![allow(dead_code, reason = "each test program uses its own part of it")]
#![allow(clippy::unwrap_used, reason = "a golden file that cannot be read is a failed test")]

use hadal::quant::Format;

use super::golden::{Golden, Rows};

/// What a format of MLX's own has as golden data, for f32 weights.
pub struct Mlx {
    /// Blocks as they are stored here.
    pub blocks: Rows<u8>,
    /// Their weights: as MLX decodes them, or where it says nothing (groups of 32 and 128) code · scale + bias.
    pub values: Rows<f32>,
    /// What was encoded.
    pub weights: Rows<f32>,
    /// Inputs, and their products with the decoded weights.
    pub inputs: Rows<f32>,
    pub products: Rows<f32>,
}

/// Bits and group, if the format is affine.
pub fn affine(format: &Format) -> Option<(usize, usize)> {
    let (bits, group) = format.name.strip_prefix("affine")?.split_once("_g")?;
    Some((bits.parse().unwrap(), group.parse().unwrap()))
}

impl Mlx {
    /// The golden of `format`, `None` if it is none of MLX's own.
    pub fn of(format: &Format) -> Option<Mlx> {
        match affine(format) {
            Some((bits, group)) => Some(Mlx::affine(bits, group)),
            None if format.name == "mxfp8" => Some(Mlx::mxfp8()),
            None => None,
        }
    }

    fn affine(bits: usize, group: usize) -> Mlx {
        let golden = Golden::open("mlx/mlx_affine.safetensors");
        let name = |part: &str| format!("f32.b{bits}g{group}.{part}");
        let (scales, biases) = (golden.get::<f32>(&name("scales")), golden.get::<f32>(&name("biases")));
        let codes: Vec<u8> =
            golden.get::<u32>(&name("packed")).values.iter().flat_map(|word| word.to_le_bytes()).collect();
        let (mut blocks, mut values) = (Vec::new(), Vec::new());
        for (i, (scale, bias)) in scales.values.iter().zip(&biases.values).enumerate() {
            let codes = &codes[i * group * bits / 8..][..group * bits / 8];
            blocks.extend(
                scale.to_le_bytes().into_iter().chain(bias.to_le_bytes()).chain(codes.iter().copied()),
            );
            for weight in 0..group {
                let bit = |at: usize| u32::from(codes[at / 8] >> (at % 8) & 1);
                let code: u32 = (0..bits).map(|b| bit(weight * bits + b) << b).sum();
                values.push(code as f32 * scale + bias);
            }
        }
        let values = golden.find::<f32>(&name("dequant")).unwrap_or(Rows { columns: 256, values });
        let columns = blocks.len() / 6;
        Mlx::with(&golden, Rows { columns, values: blocks }, values, &name("qmm_t"))
    }

    fn mxfp8() -> Mlx {
        let golden = Golden::open("mlx/mlx_fp_modes.safetensors");
        let codes = golden.get::<u32>("f32.mxfp8.packed").values;
        let codes: Vec<u8> = codes.iter().flat_map(|word| word.to_le_bytes()).collect();
        let scales = golden.get::<u8>("f32.mxfp8.scales").values;
        let blocks: Vec<u8> = scales
            .iter()
            .zip(codes.chunks_exact(32))
            .flat_map(|(scale, codes)| [&[*scale], codes].concat())
            .collect();
        let columns = blocks.len() / 6;
        let values = golden.get("f32.mxfp8.dequant");
        Mlx::with(&golden, Rows { columns, values: blocks }, values, "f32.mxfp8.qmm_t")
    }

    fn with(golden: &Golden, blocks: Rows<u8>, values: Rows<f32>, products: &str) -> Mlx {
        let (weights, inputs) = (golden.get("f32.w"), golden.get("f32.x"));
        Mlx { blocks, values, weights, inputs, products: golden.get(products) }
    }
}
