// NVFP4: four scales, unsigned E4M3 floats, then for each 16 weights 8 bytes of nibbles, each an E2M1 float: byte j
// holds weights j and j + 8.
#import lib/unpacked
#import lib/words
#import lib/e2m1

const BLOCK: u32 = 64u;
const BLOCK_BYTES: u32 = 36u;

// Half the float of a byte, as codes are doubled. The top bit does not count, but that 0x7f is 0 and 0xff is not.
fn half_e4m3(byte: u32) -> f32 {
    let magnitude = byte & 0x7fu;
    let normal = bitcast<f32>((magnitude << 20u) + 0x3b800000u);
    let scale = select(normal, f32(magnitude) * 0.0009765625, magnitude < 8u);
    return select(scale, 0.0, byte == 0x7fu);
}

fn unpack(at: u32, group: u32) {
    let stored = whole_at(at) >> (16u * group);
    scales = vec2(half_e4m3(stored & 0xffu), half_e4m3((stored >> 8u) & 0xffu));
    offsets = vec2(0.0);
    let nibbles = at + 4u + 16u * group;
    for (var i = 0u; i < 4u; i++) {
        let word = whole_at(nibbles + 4u * i);
        // Words 0 and 1 hold codes 0, 1 and 2, 3; words 2 and 3 those behind.
        let first = i + (i & 2u);
        codes[first] = e2m1(word & 0x0f0f0f0fu);
        codes[first + 2u] = e2m1((word >> 4u) & 0x0f0f0f0fu);
    }
}
