//! Tables of `docs/reference/on-disk-formats.md`, compared with records that the code writes.

const PAGE: &str = include_str!("../../../docs/reference/on-disk-formats.md");

/// One field of a table.
#[derive(Debug)]
struct Field {
    offset: usize,
    bytes: usize,
    name: String,
}

/// A table of fields. Rows whose offsets or sizes are formulas are left out.
pub struct FieldTable {
    heading: &'static str,
    fields: Vec<Field>,
}

fn cells(line: &str) -> Vec<&str> {
    line.trim_matches('|').split(" | ").map(str::trim).collect()
}

/// The fields of one row, which may list several: `16, 20 | 4, 16 | version, name`.
fn fields_of(offsets: &str, sizes: &str, names: &str) -> Vec<Field> {
    let list = |text: &str| text.split(", ").map(str::to_owned).collect::<Vec<String>>();
    let (offsets, names) = (list(offsets), list(names));
    let number = |text: &String| text.parse::<usize>().ok();
    let sizes: Vec<Option<usize>> = match sizes.strip_suffix(" each") {
        // `8, 8 each`: two numbers for each name.
        Some(each) => vec![list(each).iter().map(number).sum(); names.len()],
        None => list(sizes).iter().map(number).collect(),
    };
    let rows = offsets.iter().zip(sizes).zip(names);
    let field = |((offset, bytes), name): ((&String, Option<usize>), String)| {
        Some(Field { offset: number(offset)?, bytes: bytes?, name })
    };
    rows.filter_map(field).collect()
}

impl FieldTable {
    /// The table number `nth` (from 0) below a heading among those that have this column of
    /// offsets and a column `bytes`.
    pub fn of(heading: &'static str, column: &str, nth: usize) -> FieldTable {
        let (_, section) = PAGE.split_once(&format!("\n{heading}\n")).expect("the page has it");
        let lines: Vec<&str> = section.lines().take_while(|line| !line.starts_with('#')).collect();
        let place = |line: &str, name: &str| {
            let is_table = line.starts_with('|');
            cells(line).iter().position(|cell| is_table && *cell == name)
        };
        let head =
            |(at, line): (usize, &&str)| Some((at, place(line, column)?, place(line, "bytes")?));
        let mut heads = lines.iter().enumerate().filter_map(head);
        let (head, offset, bytes) = heads.nth(nth).expect("the section has such a table");
        let rows = lines.iter().skip(head + 2).take_while(|line| line.starts_with('|'));
        let fields = rows.flat_map(|row| {
            let cells = cells(row);
            fields_of(cells[offset], cells[bytes], cells[bytes + 1])
        });
        FieldTable { heading, fields: fields.collect() }
    }

    /// Fails unless the record has each value in a field of that name. Values are padded with NUL
    /// to the size of the field.
    pub fn assert_holds(&self, record: &[u8], values: &[(&str, &[u8])]) {
        for (name, value) in values {
            let named = self.fields.iter().filter(|field| field.name == *name);
            let named: Vec<&Field> = named.collect();
            let holds = |field: &&Field| {
                let mut wanted = value.to_vec();
                wanted.resize(field.bytes.max(wanted.len()), 0);
                record.get(field.offset..field.offset + field.bytes) == Some(wanted.as_slice())
            };
            assert!(
                named.iter().any(holds),
                "{}: the record has {name} {value:02x?} in none of {named:?}: {record:02x?}",
                self.heading
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_with_several_fields_are_split_and_formulas_left_out() {
        let text = |fields: Vec<Field>| {
            let one = |f: &Field| format!("{} {} {}", f.offset, f.bytes, f.name);
            fields.iter().map(one).collect::<Vec<_>>()
        };
        let two = fields_of("16, 20", "4, 16", "version, name");
        assert_eq!(text(two), ["16 4 version", "20 16 name"]);
        assert_eq!(text(fields_of("0, 16", "8, 8 each", "a, b")), ["0 16 a", "16 16 b"]);
        assert_eq!(text(fields_of("7, 43 + 8n", "1, 16", "n, MD5")), ["7 1 n"]);
    }

    #[test]
    #[should_panic(expected = "### label")]
    fn a_record_that_differs_is_refused() {
        let table = FieldTable { heading: "### label", fields: fields_of("0", "4", "magic") };
        table.assert_holds(b"GEOM", &[("magic", b"GEO")]);
    }
}
