//! Unit tests of `machine`.

use cognate_bench::machine::*;
use std::env::consts::{ARCH, OS};

#[test]
fn a_processor_has_its_name_its_generation_and_its_instructions() {
    let cpuinfo = "processor\t: 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\nflags\t\t: fpu avx2 avx512f avx512_vnni\n\n\
                   processor\t: 1\nmodel\t\t: 99\n";
    let machine = Machine::of(cpuinfo, 2);
    assert_eq!(machine.title, "AMD EPYC, family 25, model 17, 2 cores");
    assert_eq!(machine.slug(), "amd-epyc-family-25-model-17-2-cores");
    assert_eq!(machine.sentence(), "The processor has AVX2, AVX-512, AVX-512 VNNI.\n");
    let unknown = Machine::of("", 1);
    assert_eq!(
        (unknown.title, unknown.instructions),
        (format!("{ARCH} on {OS}, 1 core"), String::new())
    );
}
