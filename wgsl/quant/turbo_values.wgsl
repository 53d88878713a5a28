// TurboQuant's values, turned: an f16 scale, then 32 codes as a bit stream: value = codebook[code] * scale. The user
// declares BYTES of a block.
const BLOCK: u32 = 32u;
const BLOCK_BYTES: u32 = BYTES;
const BITS: u32 = BYTES / 4u;

#import lib/floats
#import lib/stream
#import lib/codebook

fn unpack(at: u32, group: u32) {
    let scale = even_half_at(at);
    stream(at + 2u);
    for (var i = 0u; i < 8u; i++) {
        let codes = unpack4xU8(streamed[i]);
        values[i] = vec4(centroid(codes.x), centroid(codes.y), centroid(codes.z), centroid(codes.w)) * scale;
    }
}
