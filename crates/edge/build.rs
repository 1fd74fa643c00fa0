//! Lists the files of `page/` so that the edge carries the page inside itself: adding a file needs no code.

use std::error::Error;
use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=page");
    println!("cargo::rerun-if-changed=build.rs");
    let root = fs::canonicalize("page")?;
    let mut files = Vec::new();
    list(&root, &root, &mut files)?;
    files.sort();
    let mut table = "&[\n".to_owned();
    for name in files {
        // Relative to the checkout that is compiled: two of them may share a target folder, and with it this table.
        let path = format!("/page/{name}");
        writeln!(table, "    ({name:?}, include_bytes!(concat!(env!(\"CARGO_MANIFEST_DIR\"), {path:?})).as_slice()),")?;
    }
    table.push_str("]\n");
    fs::write(Path::new(&env::var("OUT_DIR")?).join("page.rs"), table)?;
    Ok(())
}

fn list(root: &Path, folder: &Path, files: &mut Vec<String>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            list(root, &path, files)?;
            continue;
        }
        files.push(path.strip_prefix(root)?.to_str().ok_or("a file name that is not UTF-8")?.to_owned());
    }
    Ok(())
}
