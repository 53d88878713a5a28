//! Tags that `transformers` adds to Jinja: `{% generation %}` … `{% endgeneration %}` marks what the model said, for
//! training. It changes no text, so it becomes a condition that always holds, which keeps the white-space rules of the tag.

/// `source` with `generation` tags replaced.
pub(super) fn known(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(open) = rest.find("{%") {
        let (before, tag) = rest.split_at(open);
        // Behind the opening: in `{%}` there is no tag.
        let Some(length) = tag[2..].find("%}").map(|close| close + 4) else { break };
        out.push_str(before);
        let inside = &tag[2..length - 2];
        let name = inside.trim_start_matches(['-', '+']).trim_end_matches(['-', '+']).trim();
        match name {
            "generation" => out.push_str(&tag[..length].replace(name, "if true")),
            "endgeneration" => out.push_str(&tag[..length].replace(name, "endif")),
            // Only the two characters: what looks like the end of this tag may be a text within it.
            _ => {
                out.push_str("{%");
                rest = &tag[2..];
                continue;
            }
        }
        rest = &tag[length..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::known;

    #[test]
    fn only_generation_tags_change() {
        for (source, expected) in [
            ("a{%- generation -%} b {%endgeneration%}c", "a{%- if true -%} b {%endif%}c"),
            ("{% if generation %}x{% endif %}", "{% if generation %}x{% endif %}"),
            ("{{ '{%' }} {% generation +%}", "{{ '{%' }} {% if true +%}"),
            ("{%} a %} {%%}{%- generation%}", "{%} a %} {%%}{%- if true%}"),
            ("{% set x = '%}' %}{% endgeneration %}{%", "{% set x = '%}' %}{% endif %}{%"),
        ] {
            assert_eq!(known(source), expected);
        }
    }
}
