//! A C compiler for the guest, and a program to build with it. They are tcc and make of the host
//! with the needed files of the C library. The program is one of its header libraries of image
//! formats, in four modules.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use rig::guest::Script;
use rig::proc;

/// Where Debian has libraries.
const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";

/// What every program is linked with, there.
const LINKED: &[&str] =
    &["crt1.o", "crti.o", "crtn.o", "libc.so", "libc_nonshared.a", "libm.so", "tcc/libtcc1.a"];

/// The program: it writes an image, reads it again, and reports whether it is the same.
const SOURCES: &[(&str, &str)] = &[
    (
        "reads.c",
        "#define STBI_NO_SIMD\n#define STB_IMAGE_IMPLEMENTATION\n#include \"stb_image.h\"\n",
    ),
    ("writes.c", "#define STB_IMAGE_WRITE_IMPLEMENTATION\n#include \"stb_image_write.h\"\n"),
    ("lays.c", "#define STB_RECT_PACK_IMPLEMENTATION\n#include \"stb_rect_pack.h\"\n"),
    (
        "main.c",
        "#include <stdio.h>\n#include <string.h>\n#include \"stb_image.h\"\n\
         #include \"stb_image_write.h\"\n\
         int main(void) {\n\
         static unsigned char in[64 * 64 * 3];\n\
         int x, y, n;\n\
         for (int i = 0; i < sizeof in; i++) in[i] = i * 7 ^ i >> 5;\n\
         if (!stbi_write_png(\"out.png\", 64, 64, 3, in, 64 * 3)) return 1;\n\
         unsigned char *back = stbi_load(\"out.png\", &x, &y, &n, 3);\n\
         int same = back && x == 64 && y == 64 && !memcmp(in, back, sizeof in);\n\
         puts(same ? \"the same\" : \"another\");\n\
         return !same;\n}\n",
    ),
    (
        "Makefile",
        "OBJECTS = main.o reads.o writes.o lays.o\n\
         program: $(OBJECTS)\n\ttcc -o $@ $(OBJECTS) -lm\n\
         %.o: %.c\n\ttcc -c -o $@ $<\n",
    ),
];

/// Header libraries that the sources have with them.
const HEADERS: &[&str] = &["stb_image.h", "stb_image_write.h", "stb_rect_pack.h"];

/// Commands of the guest. Files that must be rebuilt are given an old time. A touched source would
/// get the guest's time, which may be behind the server's. Times here are whole seconds, so an
/// object may be no newer than the program.
pub const BUILD: &str = "tar xf /rig/program.tar; cd program; make; ./program | grep -qx 'the same'
    make | grep -q 'up to date'; touch -t 200001010000 reads.o program
    make | grep -c tcc | grep -qx 2; ./program
    mkdir out; cp -a *.c *.h Makefile out; cd out; make -j2; cmp program ../program";

/// The programs, and their places in the guest.
pub fn programs() -> Vec<(PathBuf, &'static str)> {
    vec![(proc::tool("tcc").unwrap(), "usr/bin/tcc"), (proc::tool("make").unwrap(), "usr/bin/make")]
}

/// Puts the sources and the files of the compiler into a guest.
pub fn furnish(script: &mut Script, scratch: &Path) {
    let home = scratch.join("program");
    std::fs::create_dir(&home).unwrap();
    for (name, text) in SOURCES {
        std::fs::write(home.join(name), text).unwrap();
    }
    for name in HEADERS {
        std::fs::copy(Path::new("/usr/include/stb").join(name), home.join(name)).unwrap();
    }
    let mut wanted: BTreeSet<PathBuf> =
        LINKED.iter().map(|name| Path::new(LIBRARIES).join(name)).collect();
    for (name, _) in SOURCES.iter().filter(|(name, _)| name.ends_with(".c")) {
        let mut tcc = Command::new(proc::tool("tcc").unwrap());
        // tcc names each file that it reads, behind an arrow. It unlinks its output file first, so
        // that must be no device of this machine.
        tcc.current_dir(&home).args(["-vv", "-c", "-o", "../module.o", name]);
        let output = proc::run(&mut tcc).unwrap();
        let read = output.lines().filter_map(|line| line.strip_prefix("->"));
        wanted.extend(read.map(str::trim).filter(|f| f.starts_with('/')).map(PathBuf::from));
    }
    assert!(wanted.iter().any(|f| f.ends_with("stdio.h")), "what it reads is not known");
    for file in wanted {
        let place = file.to_str().unwrap().trim_start_matches('/').to_owned();
        script.file(&place, std::fs::read(&file).unwrap());
    }
    let tar = scratch.join("program.tar");
    let mut command = Command::new(proc::tool("tar").unwrap());
    proc::run(command.arg("-C").arg(scratch).arg("-cf").arg(&tar).arg("program")).unwrap();
    script.file("rig/program.tar", std::fs::read(&tar).unwrap());
}
