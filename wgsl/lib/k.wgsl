// What Q4_K and Q5_K begin with: f16 scale, f16 minimum, 12 bytes of eight 6-bit scales and minimums.
#import lib/unpacked
#import lib/words

// Those of group `g` of the block at `at`, to `scales` and `offsets`.
fn scale_and_offset(at: u32, g: u32) {
    let shift = 8u * (g & 3u);
    let a = whole_at(at + 4u) >> shift;
    let b = whole_at(at + 8u) >> shift;
    let c = whole_at(at + 12u) >> shift;
    let late = g >= 4u;
    let scale = select(a & 63u, (c & 15u) | ((a >> 2u) & 48u), late);
    let minimum = select(b & 63u, ((c >> 4u) & 15u) | ((b >> 2u) & 48u), late);
    let halves = two_halves(whole_at(at)) * vec2(f32(scale), f32(minimum));
    scales = vec2(halves.x);
    offsets = vec2(-halves.y);
}
