//! Means and quantiles.

/// The mean; NaN of nothing.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The standard error of the mean.
pub fn standard_error(values: &[f64]) -> f64 {
    let (count, mean) = (values.len() as f64, mean(values));
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    (squares / (count - 1.0).max(1.0) / count).sqrt()
}

/// The value below which `part` of the `sorted` values lie, between two of them by linear interpolation.
pub fn quantile(sorted: &[f64], part: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let place = part * last as f64;
    let below = place as usize;
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_values() {
        let values = [1.0, 2.0, 4.0, 8.0];
        let cases = [(0.0, 1.0), (0.5, 3.0), (1.0, 8.0), (0.95, 7.4)];
        for (part, expected) in cases {
            assert!((quantile(&values, part) - expected).abs() < 1e-12, "{part}");
        }
        assert!(quantile(&[], 0.5).is_nan());
        assert_eq!((mean(&values), standard_error(&[3.0])), (3.75, 0.0));
    }
}
