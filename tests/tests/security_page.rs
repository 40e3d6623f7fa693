//! The page on security names the tests that prove it; each of them must exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(&path).expect("a source file"));
        }
    }
}

#[test]
fn every_test_that_the_security_page_names_exists() {
    let repository = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let page = fs::read_to_string(repository.join("docs/security.md")).expect("the page");
    let is_test = |name: &&str| {
        let underscores = name.matches('_').count();
        underscores >= 3
            && name
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    let named: BTreeSet<&str> = page.split('`').skip(1).step_by(2).filter(is_test).collect();
    assert!(named.len() > 40, "the page names {} tests", named.len());
    let mut code = String::new();
    for folder in ["host/src", "tests/tests"] {
        sources(&repository.join(folder), &mut code);
    }
    let missing: Vec<_> = named
        .into_iter()
        .filter(|name| {
            let is_there = |indent| code.contains(&format!("#[test]\n{indent}fn {name}("));
            !["", "    ", "        "].into_iter().any(is_there)
        })
        .filter(|name| !code.contains(&format!("        fn {name}(")))
        .collect();
    assert_eq!(
        missing,
        [] as [&str; 0],
        "tests that the page names and nobody wrote"
    );
}
