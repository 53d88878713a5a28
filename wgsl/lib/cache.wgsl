// Keys or values of a layer: heads x CAPACITY rows x DIM, f32 or pairs of halves. Position p is in row p % CAPACITY.
#import lib/halves

fn row_index(head: u32, position: u32) -> u32 {
    return head * CAPACITY + position % CAPACITY;
}
