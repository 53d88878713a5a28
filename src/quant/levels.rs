//! What a weight can become when the rest of its block stays: a format whose weights have bits of their own can be encoded
//! weight after weight, once the block's scales are known.
//!
//! Which bits those are is asked of the decoder: a bit of the code changes one weight, a bit of a scale changes a group. In
//! codebooks and trellis codes bits change a few neighbours; such formats have no levels.

use super::Format;
use crate::error::Result;

/// Groups that share a scale have at least so many weights.
const SMALLEST_GROUP: usize = 16;
/// Blocks that the decoder is asked about.
const PROBES: usize = 16;
/// Blocks whose codes are looked at: with the fewest of them, 32 of 8 bits, each code comes some thirty times.
const SAMPLES: usize = 256;

/// The bits of a format's codes.
#[derive(Clone, Debug)]
pub(crate) struct Levels {
    format: &'static Format,
    /// Of a block: the bits that are no codes.
    kept: Vec<u8>,
    /// Blocks with the same code everywhere and nothing else, of all codes that the encoder writes.
    codes: Vec<Vec<u8>>,
    /// Of a weight: bytes and bits of its code.
    places: Places,
    /// Whether a block has several groups with scales of their own.
    pub groups: bool,
}

/// Bytes and bits of the code of each weight.
type Places = Vec<Vec<(usize, u8)>>;

impl Levels {
    /// `None` where weights have no codes of their own, or blocks can't be made.
    pub fn of(format: &'static Format) -> Result<Option<Levels>> {
        if format.block_len < SMALLEST_GROUP || !format.has_encoder() {
            return Ok(None);
        }
        let Some((places, group)) = places(format)? else { return Ok(None) };
        let mut kept = vec![0xff; format.block_bytes];
        places.iter().flatten().for_each(|(byte, bit)| kept[*byte] &= !bit);
        let mut used = vec![false; 1 << places[0].len()];
        for block in blocks(format, SAMPLES)? {
            places.iter().for_each(|places| used[code(&block, places)] = true);
        }
        let everywhere = |code: usize| {
            let mut block = vec![0; format.block_bytes];
            places.iter().for_each(|places| write(&mut block, places, code));
            block
        };
        let codes = (0..used.len()).filter(|&code| used[code]).map(everywhere).collect();
        Ok(Some(Levels { format, kept, codes, places, groups: 2 * group <= format.block_len }))
    }

    /// Codes that a weight may have.
    pub fn count(&self) -> usize {
        self.codes.len()
    }

    /// What the weights of `block` would be with each code: weights × codes.
    pub fn read(&self, block: &[u8], out: &mut [f32]) -> Result<()> {
        let (mut bytes, mut weights) = (block.to_vec(), vec![0.0; self.places.len()]);
        for (index, code) in self.codes.iter().enumerate() {
            for i in 0..bytes.len() {
                bytes[i] = block[i] & self.kept[i] | code[i];
            }
            self.format.decode(&bytes, &mut weights)?;
            for (weight, out) in weights.iter().zip(out[index..].iter_mut().step_by(self.count())) {
                *out = *weight;
            }
        }
        Ok(())
    }

    /// Gives the weight `index` of `block` the code `code`, below [`Levels::count`].
    pub fn write(&self, block: &mut [u8], index: usize, code: usize) {
        for &(byte, bit) in &self.places[index] {
            block[byte] = block[byte] & !bit | self.codes[code][byte] & bit;
        }
    }
}

/// The bits of each weight's code, as many for each, and how many weights share a scale; `None` if there are none, or some are
/// of a codebook.
fn places(format: &'static Format) -> Result<Option<(Places, usize)>> {
    let len = format.block_len;
    let mut changes = vec![vec![false; len]; 8 * format.block_bytes];
    let (mut before, mut after) = (vec![0.0f32; len], vec![0.0f32; len]);
    for mut block in blocks(format, PROBES)? {
        format.decode(&block, &mut before)?;
        for (index, changes) in changes.iter_mut().enumerate() {
            let (byte, bit) = (index / 8, 1 << (index % 8));
            block[byte] ^= bit;
            format.decode(&block, &mut after)?;
            block[byte] ^= bit;
            for i in 0..len {
                changes[i] |= before[i].to_bits() != after[i].to_bits();
            }
        }
    }
    let (mut places, mut group) = (vec![Vec::new(); len], len);
    for (index, changes) in changes.iter().enumerate() {
        let mut changed = (0..len).filter(|&i| changes[i]);
        match (changed.next(), changed.count()) {
            (Some(only), 0) => places[only].push((index / 8, 1u8 << (index % 8))),
            (Some(_), others) if others + 1 < SMALLEST_GROUP => return Ok(None),
            (Some(_), others) => group = group.min(others + 1),
            (None, _) => {}
        }
    }
    let bits = places[0].len();
    let alike = bits > 0 && places.iter().all(|places| places.len() == bits);
    Ok(alike.then_some((places, group)))
}

/// Blocks of numbers of all magnitudes, the largest of each block of either sign.
fn blocks(format: &'static Format, count: usize) -> Result<Vec<Vec<u8>>> {
    let mut random = fastrand::Rng::with_seed(8);
    let mut block = || {
        let mut value = || {
            let value = 2.0 * random.f32() - 1.0;
            if random.bool() { value } else { value * 2f32.powi(-random.i32(0..12)) }
        };
        let values: Vec<f32> = (0..format.block_len).map(|_| value()).collect();
        let mut bytes = vec![0; format.block_bytes];
        format.encode(&values, &mut bytes).map(|()| bytes)
    };
    (0..count).map(|_| block()).collect()
}

fn code(block: &[u8], places: &[(usize, u8)]) -> usize {
    let bit = |(i, (byte, bit)): (usize, &(usize, u8))| usize::from(block[*byte] & bit != 0) << i;
    places.iter().enumerate().map(bit).sum()
}

fn write(block: &mut [u8], places: &[(usize, u8)], code: usize) {
    for (i, &(byte, bit)) in places.iter().enumerate() {
        if code >> i & 1 == 1 {
            block[byte] |= bit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::FORMATS;

    #[test]
    fn codes_are_found_where_there_are_some() {
        let count =
            |name: &str| Levels::of(Format::by_name(name).unwrap()).unwrap().map(|levels| levels.count());
        for (bits, names) in [
            (2, &["affine2_g32", "q2_k"][..]),
            (3, &["affine3_g64", "q3_k"]),
            (4, &["affine4_g128", "q4_0", "q4_1", "q4_k", "iq4_nl", "iq4_xs"]),
            (5, &["affine5_g64", "q5_0", "q5_1", "q5_k"]),
            (6, &["affine6_g64", "q6_k"]),
            (8, &["affine8_g64"]),
        ] {
            names.iter().for_each(|name| assert_eq!(count(name), Some(1 << bits), "{name}"));
        }
        let groups =
            |name: &str| Levels::of(Format::by_name(name).unwrap()).unwrap().map(|levels| levels.groups);
        for (name, several) in [
            ("affine4_g64", false),
            ("affine8_g128", false),
            ("q4_0", false),
            ("q4_k", true),
            ("nvfp4", true),
        ] {
            assert_eq!(groups(name), Some(several), "{name}");
        }
        // The lowest code of 8 bits, and the fourth of two bits, are never written.
        assert_eq!((count("q8_0"), count("tq2_0")), (Some(255), Some(3)));
        for format in FORMATS {
            let name = format.name;
            let joint = ["iq1", "iq2", "iq3", "trellis", "tq1", "f32", "f16", "bf16"];
            assert_eq!(count(name).is_none(), joint.iter().any(|joint| name.starts_with(joint)), "{name}");
        }
    }

    /// Codes that are read and written again are the block, and the nearest level of each weight is what it is.
    #[test]
    fn levels_are_what_weights_can_be() {
        for format in FORMATS {
            let Some(levels) = Levels::of(format).unwrap() else { continue };
            let (len, count) = (format.block_len, levels.count());
            let (mut table, mut weights) = (vec![0.0; len * count], vec![0.0; len]);
            for block in blocks(format, 4).unwrap() {
                levels.read(&block, &mut table).unwrap();
                format.decode(&block, &mut weights).unwrap();
                let mut copy = block.clone();
                for (i, (weight, values)) in weights.iter().zip(table.chunks_exact(count)).enumerate() {
                    let code = values.iter().position(|value| value == weight).expect("a level");
                    levels.write(&mut copy, i, code);
                }
                let mut again = vec![0.0; len];
                format.decode(&copy, &mut again).unwrap();
                assert_eq!(again, weights, "{}", format.name);
                assert!(
                    (0..block.len()).all(|i| (copy[i] ^ block[i]) & levels.kept[i] == 0),
                    "{}",
                    format.name
                );
            }
        }
    }
}
