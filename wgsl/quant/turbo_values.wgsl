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
    if BITS <= 3u {
        // Choosing is faster than a lookup a code, where a device reads for each of its lanes by itself.
        let first = four_centroids(0u) * scale;
        let last = four_centroids((1u << BITS) - 4u) * scale;
        for (var i = 0u; i < 8u; i++) {
            values[i] = chosen(unpack4xU8(streamed[i]), first, last);
        }
        return;
    }
    for (var i = 0u; i < 8u; i++) {
        let codes = unpack4xU8(streamed[i]);
        values[i] = vec4(centroid(codes.x), centroid(codes.y), centroid(codes.z), centroid(codes.w)) * scale;
    }
}
