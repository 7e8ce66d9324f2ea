//! Prints what a layer costs.
fn main() {
    match bench::layers(&[1, 3, 5, 10], 9) {
        Ok(rows) => {
            for r in &rows {
                println!("{:2} layers: {:6.1} ns (best {:.1})", r.layers, r.median_ns, r.best_ns);
            }
            let (a, b) = (rows[0], rows[rows.len() - 1]);
            let by = f64::from(b.layers - a.layers);
            let slope = (b.median_ns - a.median_ns) / by;
            println!("a layer: {slope:.1} ns (best {:.1})", (b.best_ns - a.best_ns) / by);
        }
        Err(e) => println!("{e}"),
    }
}
