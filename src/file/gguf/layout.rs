//! Which format a tensor's type means, and how many bytes it takes. Mostly the type says it; type 42 is shared by
//! two formats, and there the space that the tensor takes in the file decides.

use super::tensors::Section;
use super::types;
use crate::quant::Format;

/// More than any address space holds (x86-64 and AArch64 map 48 bits): a size above it is an overflow.
const MAX_TENSOR_BYTES: u64 = 1 << 48;

/// A way to read a tensor's bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub format: Option<&'static Format>,
    /// `None` if the type's size is unknown.
    pub bytes: Option<u64>,
}

impl Layout {
    fn new(format: &'static Format, bytes: u64) -> Layout {
        Layout { format: Some(format), bytes: Some(bytes) }
    }
}

/// The ways to read a tensor of `shape` whose type is one of `formats`: one way, except where padding hides which
/// of two formats it is. `span` is the space up to the next tensor or the end of the file.
pub(super) fn possible(
    shape: &[usize],
    type_id: u32,
    formats: &[&'static Format],
    span: u64,
    section: Section,
) -> Result<Vec<Layout>, String> {
    match formats {
        [] => {
            let element = types::element_bytes(type_id);
            let bytes = product(shape, element.unwrap_or(1))?;
            Ok(vec![Layout { format: None, bytes: element.map(|_| bytes) }])
        }
        [format] => Ok(vec![Layout::new(format, bytes_as(shape, format)?)]),
        formats => fitting(shape, formats, span, section),
    }
}

/// Those of `formats` that fill `span` but for padding.
fn fitting(
    shape: &[usize],
    formats: &[&'static Format],
    span: u64,
    section: Section,
) -> Result<Vec<Layout>, String> {
    let mut fitting = Vec::new();
    let mut tried = Vec::new();
    for &format in formats {
        match bytes_as(shape, format) {
            Ok(bytes) if bytes == 0 || (bytes <= span && span <= section.padded(bytes)) => {
                fitting.push(Layout::new(format, bytes));
            }
            Ok(bytes) => tried.push(format!("{} takes {bytes}", format.name)),
            Err(message) => tried.push(message),
        }
    }
    if fitting.is_empty() {
        return Err(format!("{span} bytes are stored, but {}", tried.join(", ")));
    }
    Ok(fitting)
}

/// One of `layouts`, which is not empty. Where there are two, it is the one that has the format `certain`, which
/// another tensor of a shared type has without doubt.
pub(super) fn choose(layouts: &[Layout], certain: Option<&Format>) -> Layout {
    if let [only] = layouts {
        return *only;
    }
    let name = |format: Option<&Format>| format.map(|format| format.name);
    let seen = |layout: &&Layout| name(layout.format) == name(certain);
    // If nothing in the file tells, take the smaller blocks. For type 42 those are upstream ggml's 64 weights;
    // the 128 are one vendor's, whose models have tensors large enough to tell.
    let block_len = |layout: &&Layout| layout.format.map(|format| format.block_len);
    *layouts.iter().find(seen).or_else(|| layouts.iter().min_by_key(block_len)).expect("there is a layout")
}

/// The bytes that `shape` takes as `format`, or why it cannot.
fn bytes_as(shape: &[usize], format: &Format) -> Result<u64, String> {
    let (columns, rows) = shape.split_last().unwrap_or((&1, &[]));
    let row = format.bytes_for(*columns).map_err(|error| error.to_string())?;
    product(rows, row).map_err(|_| too_large(shape))
}

fn product(shape: &[usize], factor: usize) -> Result<u64, String> {
    let mut factors = shape.iter().chain([&factor]).map(|&factor| factor as u64);
    let product = factors.try_fold(1, u64::checked_mul).filter(|&bytes| bytes <= MAX_TENSOR_BYTES);
    product.ok_or_else(|| too_large(shape))
}

fn too_large(shape: &[usize]) -> String {
    format!("size overflow: {shape:?} takes more than {MAX_TENSOR_BYTES} bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::Block;

    macro_rules! blocks {
        ($name:ident, $row:ident, $len:expr) => {
            #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
            #[repr(C)]
            struct $name([u8; 2], [u8; $len / 4]);

            impl Block for $name {
                const LEN: usize = $len;
                const BYTES: usize = 2 + $len / 4;

                fn decode(&self, out: &mut [f32]) {
                    out.fill(0.0);
                }
            }

            static $row: Format = Format::new::<$name>(stringify!($row), Some(42));
        };
    }
    blocks!(Vendor, WIDE, 128);
    blocks!(Upstream, NARROW, 64);

    static BOTH: &[&Format] = &[&WIDE, &NARROW];
    const SECTION: Section = Section { start: 0, alignment: 32, end: u64::MAX };

    #[test]
    fn the_space_tells_two_formats_of_one_type_apart() {
        // (rows, columns, span, formats that fit)
        let cases: &[(usize, usize, u64, &[&str])] = &[
            (1, 128, 64, &["WIDE", "NARROW"]), // 34 and 36 bytes, both padded to 64
            (1, 128, 34, &["WIDE"]),           // the end of a file that is not padded
            (1, 128, 36, &["WIDE", "NARROW"]),
            (1, 64, 32, &["NARROW"]),
            (1, 192, 64, &["NARROW"]),
            (8, 256, 544, &["WIDE"]),
            (8, 256, 576, &["NARROW"]),
            (8, 256, 543, &[]),
            (8, 256, 640, &[]),
            (0, 256, 0, &["WIDE", "NARROW"]),
            (usize::MAX, 256, 576, &[]),
        ];
        let mut failures = Vec::new();
        for case @ &(rows, columns, span, expected) in cases {
            let found = possible(&[rows, columns], 42, BOTH, span, SECTION).unwrap_or_default();
            let found: Vec<_> = found.iter().map(|layout| layout.format.unwrap().name).collect();
            if found != expected {
                failures.push(format!("{case:?}: {found:?}"));
            }
        }
        assert!(failures.is_empty(), "{failures:#?}");
    }

    #[test]
    fn other_tensors_decide_where_padding_hides_the_format() {
        let layouts = possible(&[1, 128], 42, BOTH, 64, SECTION).unwrap();
        let chosen = |certain| choose(&layouts, certain).format.unwrap().name;
        assert_eq!(chosen(Some(&WIDE)), "WIDE");
        assert_eq!(chosen(Some(&NARROW)), "NARROW");
        assert_eq!(chosen(None), "NARROW");
    }
}
