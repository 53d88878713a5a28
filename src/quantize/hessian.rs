//! What matrices read, as sums of products: H = sum of x x^T over the inputs x of a text. To first order the squared error of a
//! layer's outputs is tr(E H E^T), where E is the error of its weights (GPTQ, QuIP).

use indexmap::IndexMap;

use super::Feedback;

/// Of the matrices of a model. Matrices with one input share it.
#[derive(Clone, Debug, Default)]
pub struct Hessians {
    /// By a matrix's name, which of `sums`.
    names: IndexMap<String, usize>,
    sums: Vec<Products>,
}

/// The lower half of H.
#[derive(Clone, Debug)]
pub struct Products {
    columns: usize,
    /// columns × columns; above the diagonal nothing is added.
    values: Vec<f64>,
}

impl Products {
    /// Adds an input of `columns` numbers. One that is not finite is left out: nothing could be made of it.
    pub fn add(&mut self, input: &[f32]) {
        if !input.iter().all(|x| x.is_finite()) {
            return;
        }
        for (i, row) in input.iter().zip(self.values.chunks_exact_mut(self.columns.max(1))) {
            let i = f64::from(*i);
            if i != 0.0 {
                row.iter_mut().zip(input).for_each(|(sum, &j)| *sum += i * f64::from(j));
            }
        }
    }
}

impl Hessians {
    /// Hessians that are known: rows of `columns` numbers.
    pub fn insert(&mut self, name: &str, columns: usize, values: Vec<f64>) {
        self.names.insert(name.into(), self.sums.len());
        self.sums.push(Products { columns, values });
    }

    /// The sums that matrices of the same input share.
    pub(super) fn of<'a>(&mut self, names: impl Iterator<Item = &'a str>, columns: usize) -> &mut Products {
        let names: Vec<&str> = names.collect();
        let known = names.first().and_then(|name| self.names.get(*name)).copied();
        let index = known.unwrap_or_else(|| {
            self.sums.push(Products { columns, values: vec![0.0; columns * columns] });
            self.sums.len() - 1
        });
        for name in names {
            self.names.insert(name.into(), index);
        }
        &mut self.sums[index]
    }

    /// How errors of the matrix `name` are made up for, in blocks of `block_len` columns at least; `None` where nothing is
    /// known of it, where blocks do not fit or where H is of no use: then each block is encoded alone.
    pub fn feedback(&self, name: &str, block_len: usize) -> Option<Feedback> {
        let sums = &self.sums[*self.names.get(name)?];
        if block_len <= 1 {
            return None; // floats
        }
        Feedback::new(&sums.values, sums.columns, block_len)
    }

    /// Matrices that something is known of.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }
}
