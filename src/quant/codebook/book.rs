//! A codebook arranged for searching. A run of weights is what one entry stands for, 8 of three levels or 4 of eight; what an
//! entry costs is the sum of what its two halves cost, and there are only 81 or 64 different halves. So halves are weighed
//! first, and of the entries only those are looked at whose lower half leaves a chance. Several steps are searched at once,
//! one a lane.

use super::Grid;

/// Halves that there may be at most.
pub const HALVES: usize = 81;
/// Steps that are searched at once.
pub const LANES: usize = 8;

/// One number for each step.
pub type Lanes = [f32; LANES];

/// What each half costs at each step, the lower ones first: room to work in, which need not be cleared.
pub type Costs = [[Lanes; HALVES]; 2];

/// Sums over the values of each half that a run may have, the lower ones first.
pub struct Sums {
    /// Of weight * value * code.
    pub product: [[f32; HALVES]; 2],
    /// Of weight * code^2.
    pub square: [[f32; HALVES]; 2],
}

/// An entry for a run.
#[derive(Clone, Copy, Default)]
pub struct Found {
    pub index: u16,
    /// Sum of weight * value * code.
    pub product: f32,
    /// Sum of weight * code^2.
    pub square: f32,
}

/// Entries by their lower half.
#[derive(Debug)]
pub struct Book {
    /// Halves that there may be.
    count: usize,
    /// Of each lower half the first of its entries, and the end of the last one's.
    starts: [u16; HALVES + 1],
    /// Upper half and index, by lower half.
    entries: Vec<(u8, u16)>,
    /// The halves of each entry.
    halves: Vec<[u8; 2]>,
    /// Each entry's values.
    values: Vec<[i8; 8]>,
}

impl Book {
    /// `levels`: what values may be, lowest first. A half is numbered by the places of its values in it, the first value
    /// counts most.
    pub fn new(grid: Grid, levels: &[i8]) -> Book {
        let length = match grid {
            Grid::Eights(_) => 8,
            Grid::Fours(_) => 4,
        };
        let digit = |byte: u8| levels.iter().position(|&level| level == byte.cast_signed()).unwrap_or(0);
        let number = |half: &[u8]| half.iter().fold(0, |number, &v| levels.len() * number + digit(v)) as u8;
        let entries = grid.bytes().chunks_exact(length);
        let halves: Vec<_> = entries
            .clone()
            .map(|entry| entry.split_at(length / 2))
            .map(|(lower, upper)| [number(lower), number(upper)])
            .collect();
        let mut sorted: Vec<_> =
            halves.iter().zip(0..).map(|(&[lower, upper], i)| (lower, upper, i)).collect();
        sorted.sort_unstable();
        let before = |half: usize| sorted.partition_point(|&(lower, ..)| usize::from(lower) < half) as u16;
        let value = |entry: &[u8], i: usize| entry.get(i).map_or(0, |byte| byte.cast_signed());
        Book {
            count: levels.len().pow(length as u32 / 2),
            starts: std::array::from_fn(before),
            entries: sorted.iter().map(|&(_, upper, index)| (upper, index)).collect(),
            values: entries.map(|entry| std::array::from_fn(|i| value(entry, i))).collect(),
            halves,
        }
    }

    /// The values of entry `index`: eight, or four and zeros.
    #[inline(always)]
    pub fn values(&self, index: u16) -> &[i8; 8] {
        &self.values[usize::from(index)]
    }

    /// For each of the `steps`, which are positive, the entry with the least step * square - 2 * product. Of two `sums` the
    /// first are those of the lower half of the lanes.
    #[inline(always)]
    pub fn cheapest<const SIDES: usize>(
        &self,
        sums: [&Sums; SIDES],
        steps: &Lanes,
        costs: &mut Costs,
    ) -> [Found; LANES] {
        let mut half_steps = [0.0; LANES];
        for lane in 0..LANES {
            half_steps[lane] = 0.5 * steps[lane];
        }
        let mut least = [[f32::INFINITY; LANES]; 2];
        for half in 0..2 {
            for n in 0..self.count {
                let (mut squares, mut products) = ([0.0; LANES], [0.0; LANES]);
                for lane in 0..LANES {
                    let sums = sums[lane * SIDES / LANES];
                    (squares[lane], products[lane]) = (sums.square[half][n], sums.product[half][n]);
                }
                for lane in 0..LANES {
                    // Half of it.
                    let cost = half_steps[lane] * squares[lane] - products[lane];
                    costs[half][n][lane] = cost;
                    least[half][lane] = if cost < least[half][lane] { cost } else { least[half][lane] };
                }
            }
        }
        let [lower, upper] = &*costs;
        let mut best = Best { cost: [f32::INFINITY; LANES], index: [0; LANES] };
        // The best lower halves first: then few others leave a chance.
        let mut visited = [false; HALVES];
        for n in 0..self.count {
            if any_at_most(&lower[n], &least[0]) {
                visited[n] = true;
                self.visit(n, &lower[n], upper, &mut best);
            }
        }
        for n in 0..self.count {
            let mut bound = [0.0; LANES];
            for lane in 0..LANES {
                bound[lane] = lower[n][lane] + least[1][lane];
            }
            if !visited[n] && any_less(&bound, &best.cost) {
                self.visit(n, &lower[n], upper, &mut best);
            }
        }
        let mut found = [Found::default(); LANES];
        for lane in 0..LANES {
            let (sums, index) = (sums[lane * SIDES / LANES], best.index[lane]);
            let [lower, upper] = self.halves[index as usize];
            let (lower, upper) = (usize::from(lower), usize::from(upper));
            found[lane] = Found {
                index: index as u16,
                product: sums.product[0][lower] + sums.product[1][upper],
                square: sums.square[0][lower] + sums.square[1][upper],
            };
        }
        found
    }

    /// Tries the entries with the lower half `n`, which costs `lower`.
    #[inline(always)]
    fn visit(&self, n: usize, lower: &Lanes, upper: &[Lanes; HALVES], best: &mut Best) {
        let entries = usize::from(self.starts[n])..usize::from(self.starts[n + 1]);
        // Indices by masks, and both in variables of their own: otherwise there would be a branch for each lane.
        let (mut least, mut best_index) = (best.cost, best.index);
        for &(half, index) in &self.entries[entries] {
            let upper = &upper[usize::from(half)];
            let (mut cost, mut less) = ([0.0; LANES], [0; LANES]);
            for lane in 0..LANES {
                cost[lane] = lower[lane] + upper[lane];
                less[lane] = u32::from(cost[lane] < least[lane]).wrapping_neg();
            }
            for lane in 0..LANES {
                least[lane] = if cost[lane] < least[lane] { cost[lane] } else { least[lane] };
                best_index[lane] = u32::from(index) & less[lane] | best_index[lane] & !less[lane];
            }
        }
        (best.cost, best.index) = (least, best_index);
    }
}

struct Best {
    cost: Lanes,
    index: [u32; LANES],
}

/// Whether `a` is at most `b` in one lane, without a branch a lane.
#[inline(always)]
fn any_at_most(a: &Lanes, b: &Lanes) -> bool {
    let mut holds = 0;
    for lane in 0..LANES {
        holds |= u32::from(a[lane] <= b[lane]);
    }
    holds != 0
}

/// Whether `a` is less than `b` in one lane, without a branch a lane.
#[inline(always)]
fn any_less(a: &Lanes, b: &Lanes) -> bool {
    let mut holds = 0;
    for lane in 0..LANES {
        holds |= u32::from(a[lane] < b[lane]);
    }
    holds != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::grids;

    #[test]
    fn the_cheapest_entries_are_found() {
        let books: [(Grid, &[i8]); 3] = [
            (Grid::Eights(&grids::IQ2_XXS), &[8, 25, 43]),
            (Grid::Eights(&grids::IQ1), &[-8, 0, 8]),
            (Grid::Fours(&grids::IQ3_S), &[1, 3, 5, 7, 9, 11, 13, 15]),
        ];
        let mut random = fastrand::Rng::with_seed(7);
        let steps = std::array::from_fn(|lane| 0.5 + lane as f32);
        let mut costs = [[[0.0; LANES]; HALVES]; 2];
        for (grid, levels) in books {
            let book = Book::new(grid, levels);
            for _ in 0..200 {
                let mut sums = Sums { product: [[0.0; HALVES]; 2], square: [[0.0; HALVES]; 2] };
                let Sums { product, square } = &mut sums;
                product.iter_mut().chain(square).flatten().for_each(|sum| *sum = random.f32());
                for (found, step) in book.cheapest([&sums], &steps, &mut costs).iter().zip(steps) {
                    let cost = |[lower, upper]: [u8; 2]| {
                        let of = |n: u8, half: usize| {
                            step * sums.square[half][usize::from(n)]
                                - 2.0 * sums.product[half][usize::from(n)]
                        };
                        of(lower, 0) + of(upper, 1)
                    };
                    let least = book.halves.iter().map(|&halves| cost(halves)).min_by(f32::total_cmp);
                    assert_eq!(Some(cost(book.halves[usize::from(found.index)])), least);
                }
            }
        }
    }
}
