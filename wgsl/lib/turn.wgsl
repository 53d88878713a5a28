// TurboQuant's turning (`quant/turbo.rs`) of `turned`, DIM numbers that the user declares, by all invocations of a
// workgroup: signs, then the Walsh-Hadamard transform. The same sums as on the CPU, so the same bits.
#import lib/tables

const SIGNS: u32 = 627u + (DIM - 64u) / 32u;

fn turn(t: u32) {
    flip(t);
    transform(t);
    workgroupBarrier();
}

fn turn_back(t: u32) {
    transform(t);
    flip(t);
    workgroupBarrier();
}

// Each invocation its own elements.
fn flip(t: u32) {
    for (var i = t; i < DIM; i += WORKGROUP) {
        let negative = ((tables[SIGNS + i / 32u] >> (i % 32u)) & 1u) == 1u;
        turned[i] = select(turned[i], -turned[i], negative);
    }
}

fn transform(t: u32) {
    workgroupBarrier();
    for (var distance = 1u; distance < DIM; distance <<= 1u) {
        for (var i = t; i < DIM / 2u; i += WORKGROUP) {
            let first = 2u * i - i % distance;
            let a = turned[first];
            let b = turned[first + distance];
            turned[first] = a + b;
            turned[first + distance] = a - b;
        }
        workgroupBarrier();
    }
    for (var i = t; i < DIM; i += WORKGROUP) {
        turned[i] *= inverse_root();
    }
}

// 1 / sqrt(DIM).
fn inverse_root() -> f32 {
    let even = select(0.125, 0.0625, DIM == 256u);
    let odd = select(0.088388346, 0.044194173, DIM == 512u);
    return select(even, odd, DIM == 128u || DIM == 512u);
}
