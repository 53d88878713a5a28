//! A picture: points with names, bits to the right, divergence upwards on a logarithmic scale.

use std::fmt::Write;

/// A named point.
pub struct Point {
    pub name: String,
    pub x: f64,
    /// Above zero.
    pub y: f64,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 480.0;
const MARGIN: f64 = 60.0;
/// Of the axis to the right: no kind has more bits that one would want to compare.
const MOST_BITS: f64 = 18.0;

/// An SVG document.
pub fn svg(title: &str, points: &[Point]) -> String {
    let shown: Vec<_> = points.iter().filter(|point| point.x <= MOST_BITS).collect();
    let exponents = shown.iter().map(|point| point.y.log10());
    let low = exponents.clone().fold(0.0, f64::min).floor();
    let high = exponents.fold(low + 1.0, f64::max).ceil();
    let x = |bits: f64| MARGIN + (WIDTH - 2.0 * MARGIN) * bits / MOST_BITS;
    let y = |exponent: f64| HEIGHT - MARGIN - (HEIGHT - 2.0 * MARGIN) * (exponent - low) / (high - low);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text(&mut svg, WIDTH / 2.0, 24.0, "middle", title);
    for bits in (0..=MOST_BITS as u32).step_by(2).map(f64::from) {
        line(&mut svg, (x(bits), y(low)), (x(bits), y(high)));
        text(&mut svg, x(bits), y(low) + 18.0, "middle", &bits.to_string());
    }
    for exponent in low as i32..=high as i32 {
        let at = y(f64::from(exponent));
        line(&mut svg, (x(0.0), at), (x(MOST_BITS), at));
        text(&mut svg, x(0.0) - 6.0, at + 4.0, "end", &format!("1e{exponent}"));
    }
    for point in shown {
        let (x, y) = (x(point.x), y(point.y.log10()));
        let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"#1f6fb2\">");
        let (bits, kl) = (point.x, point.y);
        let _ =
            writeln!(svg, "<title>{}: {bits:.2} bits, KL {kl:.2e}</title></circle>", escaped(&point.name));
        text(&mut svg, x + 7.0, y + 4.0, "start", &point.name);
    }
    svg + "</svg>\n"
}

/// An HTML page of the picture, whose points say what they are when they are pointed at, and the table.
pub fn html(title: &str, points: &[Point], table: &str) -> String {
    let (picture, title, table) = (svg(title, points), escaped(title), escaped(table));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{title}: caches</title>\n\
         <style>body {{ font-family: sans-serif; margin: 2em auto; max-width: 60em; }}</style>\n\
         {picture}<pre>{table}</pre>\n</html>\n"
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64)) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ =
        writeln!(svg, "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"#ddd\"/>");
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let text = escaped(text);
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_lie_by_bits_and_logarithm() {
        let point = |name: &str, x, y| Point { name: name.into(), x, y };
        let svg = svg(
            "a < b: mean KL",
            &[point("f16", 16.0, 1e-4), point("f32", 32.0, 1e-9), point("x", 9.0, 1e-2)],
        );
        assert!(svg.contains("a &lt; b: mean KL"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 2, "what is off the axis is left out");
        // From 1e-4 at the bottom to 1e-2 at the top.
        assert!(svg.contains("<circle cx=\"360.0\" cy=\"60.0\""), "{svg}");
        assert!(svg.contains("cy=\"420.0\""), "{svg}");
        assert!(svg.contains("<title>x: 9.00 bits, KL 1.00e-2</title>"), "{svg}");
        let html = html("a < b", &[point("x", 9.0, 1e-2)], "x <1\n");
        assert!(
            html.starts_with("<!doctype html>") && html.contains("<title>a &lt; b: caches</title>"),
            "{html}"
        );
        assert!(html.contains("<circle ") && html.contains("<pre>x &lt;1\n</pre>"), "{html}");
    }
}
