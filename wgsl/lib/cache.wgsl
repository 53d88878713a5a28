// Keys or values of a part of a layer: heads x CAPACITY rows, each from a whole word on. Position p is in row p % CAPACITY.
#import lib/halves

fn row_index(head: u32, position: u32) -> u32 {
    return head * CAPACITY + position % CAPACITY;
}
