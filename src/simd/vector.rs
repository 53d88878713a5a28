//! What integer kernels are written in: a vector of 32-bit lanes, each of which also holds four bytes. One source over
//! [`Vector`] serves every instruction set, and [`Emulated`] proves it on machines that lack one.
//!
//! All methods of an implementation are `#[inline(always)]`: a kernel has the instruction set that its entry function
//! was compiled for. Closures and iterator adapters are not always inlined there, so kernels are index loops over arrays.

/// A lookup of bytes in a table of 16, which every vector instruction set has.
pub(crate) trait Shuffle {
    /// `table[index & 15]` for each index.
    fn lookup16(table: &[u8; 16], indices: &[u8; 16]) -> [u8; 16];
}

/// The operations of integer kernels. An implementation may run only where its instruction set is available: its
/// kernels are listed under that `Isa`.
pub(crate) trait Vector: Shuffle {
    /// 32-bit lanes.
    const LANES: usize;
    /// Whether the codes that [`Vector::add_dots`] takes are u8; else they are i8.
    const UNSIGNED: bool;
    /// `LANES` × i32, or 4 · `LANES` bytes.
    type Int: Copy;
    /// `LANES` × f32.
    type Float: Copy;
    /// Sums of dots before they are brought into lanes.
    type Dots: Copy;

    /// The first 4 · `LANES` bytes.
    fn load(bytes: &[u8]) -> Self::Int;
    fn splat(x: i32) -> Self::Int;
    fn add(a: Self::Int, b: Self::Int) -> Self::Int;
    fn sub(a: Self::Int, b: Self::Int) -> Self::Int;
    fn mul(a: Self::Int, b: Self::Int) -> Self::Int;
    /// In each lane the sum of the products of two i16.
    fn dot_pairs(a: Self::Int, b: Self::Int) -> Self::Int;

    fn no_dots() -> Self::Dots;
    /// Adds in each lane the products of four codes with four inputs. Inputs are i8, and not -128.
    fn add_dots(dots: Self::Dots, codes: Self::Int, inputs: Self::Int) -> Self::Dots;
    fn dots(dots: Self::Dots) -> Self::Int;

    /// The nearest floats, ties to even.
    fn to_float(a: Self::Int) -> Self::Float;
    /// The first `LANES` floats.
    fn load_f(values: &[f32]) -> Self::Float;
    fn store_f(a: Self::Float, out: &mut [f32]);
    fn splat_f(x: f32) -> Self::Float;
    fn add_f(a: Self::Float, b: Self::Float) -> Self::Float;
    fn sub_f(a: Self::Float, b: Self::Float) -> Self::Float;
    fn mul_f(a: Self::Float, b: Self::Float) -> Self::Float;
}

/// A vector of 16 bytes with signed codes, which the dots of single rows run on.
#[allow(dead_code, reason = "x86-64 has none")]
pub(crate) trait Vector128: Vector {
    /// The difference of each byte, modulo 256.
    fn sub_bytes(a: Self::Int, b: Self::Int) -> Self::Int;
    /// The sum of all lanes.
    fn total(a: Self::Int) -> i32;
}

/// A vector of 16 bytes with signed codes that is also a matrix of two rows of eight bytes, and as i32 one of two by two.
#[allow(dead_code, reason = "x86-64 and wasm32 have none")]
pub(crate) trait Matrix: Vector {
    /// The first eight bytes of two rows.
    fn load_rows(first: &[u8], second: &[u8]) -> Self::Int;
    /// Adds the products of two rows of codes and two of inputs: lane 2 i + j is row i of the codes times row j of the
    /// inputs. Inputs are i8, and not -128.
    fn add_products(sums: Self::Int, codes: Self::Int, inputs: Self::Int) -> Self::Int;
    /// Lanes 0 and 2 of `a` and of `b`, and lanes 1 and 3.
    fn unzip(a: Self::Int, b: Self::Int) -> [Self::Int; 2];
}

/// Methods of a [`Vector`] that are an expression each.
#[allow(unused_macros, reason = "no instruction set of this architecture")]
macro_rules! operations {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)? { $body:expr })+) => {$(
        #[inline(always)]
        #[allow(unused_unsafe, reason = "what the target always has is safe to call")]
        fn $name($($arg: $ty),*) $(-> $ret)? {
            // SAFETY: vectors run only where their instruction set is available, see `Vector`; loads and stores are
            // of memory that a reference proves to be there, and ask for no alignment.
            unsafe { $body }
        }
    )+};
}
#[allow(unused_imports, reason = "no instruction set of this architecture")]
pub(crate) use operations;

/// The bytes that a vector of `N` of them loads.
#[allow(dead_code, reason = "no instruction set of this architecture")]
#[inline(always)]
pub(crate) fn first<T, const N: usize>(values: &[T]) -> *const T {
    values[..N].as_ptr()
}

/// The memory that a vector of `N` values is stored to.
#[allow(dead_code, reason = "no instruction set of this architecture")]
#[inline(always)]
pub(crate) fn first_mut<T, const N: usize>(values: &mut [T]) -> *mut T {
    values[..N].as_mut_ptr()
}

/// `N` lanes as arrays; codes are u8 if `U`; a [`Matrix`] if `M`.
#[cfg(test)]
pub(crate) struct Emulated<const N: usize, const U: bool, const M: bool = false>;

#[cfg(test)]
mod emulated {
    use std::array::from_fn;

    use super::{Emulated, Matrix, Shuffle, Vector, Vector128};

    impl<const N: usize, const U: bool, const M: bool> Shuffle for Emulated<N, U, M> {
        fn lookup16(table: &[u8; 16], indices: &[u8; 16]) -> [u8; 16] {
            indices.map(|index| table[usize::from(index & 15)])
        }
    }

    fn code<const U: bool>(byte: u8) -> i32 {
        if U { i32::from(byte) } else { i32::from(byte.cast_signed()) }
    }

    fn i16s(lane: i32) -> [i32; 2] {
        [i32::from(lane as i16), lane >> 16]
    }

    impl<const N: usize, const U: bool, const M: bool> Vector for Emulated<N, U, M> {
        const LANES: usize = N;
        const UNSIGNED: bool = U;
        type Int = [i32; N];
        type Float = [f32; N];
        type Dots = [i32; N];

        fn load(bytes: &[u8]) -> [i32; N] {
            let lanes = bytes.as_chunks::<4>().0;
            from_fn(|i| i32::from_ne_bytes(lanes[i]))
        }
        fn splat(x: i32) -> [i32; N] {
            [x; N]
        }
        fn add(a: [i32; N], b: [i32; N]) -> [i32; N] {
            from_fn(|i| a[i] + b[i])
        }
        fn sub(a: [i32; N], b: [i32; N]) -> [i32; N] {
            from_fn(|i| a[i] - b[i])
        }
        fn mul(a: [i32; N], b: [i32; N]) -> [i32; N] {
            from_fn(|i| a[i] * b[i])
        }
        fn dot_pairs(a: [i32; N], b: [i32; N]) -> [i32; N] {
            from_fn(|i| {
                let (a, b) = (i16s(a[i]), i16s(b[i]));
                a[0] * b[0] + a[1] * b[1]
            })
        }
        fn no_dots() -> [i32; N] {
            [0; N]
        }
        fn add_dots(dots: [i32; N], codes: [i32; N], inputs: [i32; N]) -> [i32; N] {
            from_fn(|i| {
                let (codes, inputs) = (codes[i].to_ne_bytes(), inputs[i].to_ne_bytes());
                dots[i]
                    + (0..4).map(|j| code::<U>(codes[j]) * i32::from(inputs[j].cast_signed())).sum::<i32>()
            })
        }
        fn dots(dots: [i32; N]) -> [i32; N] {
            dots
        }
        fn to_float(a: [i32; N]) -> [f32; N] {
            a.map(|a| a as f32)
        }
        fn load_f(values: &[f32]) -> [f32; N] {
            from_fn(|i| values[i])
        }
        fn store_f(a: [f32; N], out: &mut [f32]) {
            out[..N].copy_from_slice(&a);
        }
        fn splat_f(x: f32) -> [f32; N] {
            [x; N]
        }
        fn add_f(a: [f32; N], b: [f32; N]) -> [f32; N] {
            from_fn(|i| a[i] + b[i])
        }
        fn sub_f(a: [f32; N], b: [f32; N]) -> [f32; N] {
            from_fn(|i| a[i] - b[i])
        }
        fn mul_f(a: [f32; N], b: [f32; N]) -> [f32; N] {
            from_fn(|i| a[i] * b[i])
        }
    }

    impl Vector128 for Emulated<4, false> {
        fn sub_bytes(a: [i32; 4], b: [i32; 4]) -> [i32; 4] {
            from_fn(|i| {
                let (a, b) = (a[i].to_ne_bytes(), b[i].to_ne_bytes());
                i32::from_ne_bytes(from_fn(|j| a[j].wrapping_sub(b[j])))
            })
        }
        fn total(a: [i32; 4]) -> i32 {
            a.iter().sum()
        }
    }

    impl Matrix for Emulated<4, false, true> {
        fn load_rows(first: &[u8], second: &[u8]) -> [i32; 4] {
            Self::load(&[&first[..8], &second[..8]].concat())
        }
        fn add_products(sums: [i32; 4], codes: [i32; 4], inputs: [i32; 4]) -> [i32; 4] {
            let rows = |v: [i32; 4]| bytemuck::cast::<_, [[i8; 8]; 2]>(v);
            let (codes, inputs) = (rows(codes), rows(inputs));
            from_fn(|i| {
                let products = codes[i / 2].iter().zip(&inputs[i % 2]);
                sums[i] + products.map(|(&code, &x)| i32::from(code) * i32::from(x)).sum::<i32>()
            })
        }
        fn unzip(a: [i32; 4], b: [i32; 4]) -> [[i32; 4]; 2] {
            [[a[0], a[2], b[0], b[2]], [a[1], a[3], b[1], b[3]]]
        }
    }
}
