// F32: numbers as they are.
fn encode(t: u32) {}

fn word(i: u32) -> u32 {
    return bitcast<u32>(turned[i]);
}
