//! What is refused, and how; and that the comparison finds what is wrong.

use argon_plan::{Error, Plan, Shape, Variant, build, build_lenient, check_ids, check_untouched, compare, meta};

const POLLUTION: u32 = 0xDEAD_BEEF;

fn shape() -> Shape {
    Shape::new(9, 2, 4, 4).unwrap()
}

const IDS: [i32; 18] = [2, 0, 2, -1, 0, 2, 3, 1, 1, 1, 0, 3, 2, 3, -1, -1, 0, 1];

fn plan() -> Plan {
    Plan::build(shape(), &IDS, &[0; 18], Variant::default()).unwrap()
}

#[test]
fn a_shape_knows_every_length() {
    let shape = Shape::new(300, 10, 512, 16).unwrap();
    assert_eq!((shape.tokens(), shape.top_k(), shape.experts(), shape.tile()), (300, 10, 512, 16));
    assert_eq!((shape.entries(), shape.blocks()), (3000, 3));
    // 512 experts open a tile each; the other 2488 entries fill 155 more.
    assert_eq!((shape.max_tiles(), shape.max_rows()), (667, 10672));
    assert_eq!((shape.block_words(), shape.eoff_words(), shape.tile_words()), (1536, 513, 2001));
}

#[test]
fn a_shape_refuses_zero() {
    assert_eq!(Shape::new(1, 0, 1, 1), Err(Error::Zero { name: "top_k" }));
    assert_eq!(Shape::new(1, 1, 0, 1), Err(Error::Zero { name: "experts" }));
    assert_eq!(Shape::new(1, 1, 1, 0), Err(Error::Zero { name: "tile" }));
}

#[test]
fn a_shape_refuses_what_an_index_cannot_reach() {
    let refused = |tokens, top_k, experts, tile| match Shape::new(tokens, top_k, experts, tile) {
        Err(Error::TooLarge { name, .. }) => name,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(0, usize::MAX, 1, 1), "top_k");
    assert_eq!(refused(0, 1, 1, 1 << 31), "tile");
    assert_eq!(refused(0, 1, usize::MAX, 1), "eoff");
    assert_eq!(refused(0, 1, (1 << 31) - 1, 1), "eoff");
    assert_eq!(refused(usize::MAX, 2, 1, 1), "pos");
    assert_eq!(refused(1 << 31, 1, 1, 1), "pos");
    assert_eq!(refused(1 << 30, 1, 1, 1), "tiles");
    assert_eq!(refused(1 << 16, 1, 1 << 15, 1 << 16), "stok");
    assert_eq!(refused(1 << 26, 1, 1 << 15, 1 << 9), "bcnt");
    assert!(Shape::new(0, (1 << 31) - 1, (1 << 31) - 2, (1 << 31) - 1).is_ok());
}

#[test]
fn inputs_have_one_word_for_each_entry() {
    let refused = |ids: &[i32], weights: &[u32]| Plan::build(shape(), ids, weights, Variant::default()).err();
    let error = |name, found| Some(Error::InputLength { name, found, entries: 18 });
    assert_eq!(refused(&IDS[..17], &[0; 18]), error("ids", 17));
    assert_eq!(refused(&[0; 19], &[0; 18]), error("ids", 19));
    assert_eq!(refused(&IDS, &[0; 17]), error("weights", 17));
}

#[test]
fn the_host_refuses_a_bad_id_and_a_device_counts_it() {
    for bad in [i32::MIN, -2, 4, i32::MAX] {
        let mut ids = IDS;
        ids[7] = bad;
        let error = Error::IdOutOfRange { entry: 7, id: bad, experts: 4 };
        assert_eq!(check_ids(&shape(), &ids), Err(error.clone()));
        for variant in Variant::ALL {
            let mut plan = Plan::filled(shape(), POLLUTION, 0);
            let refused = build(variant, &shape(), &ids, &[0; 18], &mut plan.buffers());
            assert_eq!(refused, Err(error.clone()));
            compare(&Plan::filled(shape(), POLLUTION, 0), &plan).unwrap();

            let plan = Plan::build_lenient(shape(), &ids, &[0; 18], variant).unwrap();
            assert_eq!((plan.meta()[meta::REJECTED], plan.meta()[meta::SKIPPED], plan.pos()[7]), (1, 3, -1));
        }
    }
    assert_eq!(check_ids(&shape(), &IDS), Ok(()));
}

#[test]
fn a_short_buffer_is_named_before_anything_is_written() {
    let mut plan = Plan::filled(shape(), POLLUTION, 0);
    let mut out = plan.buffers();
    let short = shape().max_rows() - 1;
    out.sw = &mut out.sw[..short];
    let refused = build_lenient(Variant::default(), &shape(), &IDS, &[0; 18], &mut out);
    assert_eq!(refused, Err(Error::BufferTooSmall { name: "sw", found: short, required: short + 1 }));
    compare(&Plan::filled(shape(), POLLUTION, 0), &plan).unwrap();
}

#[test]
fn errors_name_the_thing() {
    let message = Error::IdOutOfRange { entry: 7, id: 512, experts: 512 }.to_string();
    assert_eq!(message, "entry 7: expert id 512 is outside -1..=511");
}

#[test]
fn variants_have_distinct_names() {
    let mut names: Vec<_> = Variant::ALL.iter().map(|variant| variant.name()).collect();
    names.sort_unstable();
    assert_eq!(names, ["fused", "packed", "parallel", "running", "serial"]);
    assert_eq!(Variant::default().resolve(&shape()), Variant::Running);
}

/// One wrong word in any buffer is found, at its coordinate and nowhere else.
#[test]
fn the_comparison_finds_a_planted_fault() {
    let good = plan();
    compare(&good, &good).unwrap();
    let found = |plant: fn(&mut Plan)| {
        let mut bad = good.clone();
        plant(&mut bad);
        compare(&good, &bad).unwrap_err().to_string()
    };
    assert_eq!(found(|p| p.buffers().pos[17] += 1), "pos[17]: 7 != 8");
    assert_eq!(found(|p| p.buffers().pos[3] = 0), "pos[3]: -1 != 0");
    assert_eq!(found(|p| p.buffers().meta[meta::REJECTED] = 1), "meta[9]: 0 != 1");
    assert_eq!(found(|p| p.buffers().eoff[4] = 17), "eoff[4]: 16 != 17");
    assert_eq!(found(|p| p.buffers().bcnt[3] = POLLUTION), "bcnt[0, 3]: 3 != 3735928559");
    assert_eq!(found(|p| p.buffers().boff[2] += 1), "boff[0, 2]: 8 != 9");
    assert_eq!(found(|p| p.buffers().tiles[11] = 4), "tiles[3, 2]: 3 != 4");
    assert_eq!(found(|p| p.buffers().stok[15] = 0), "stok[15]: -1 != 0");
    assert_eq!(found(|p| p.buffers().sw[15] = 1), "sw[15]: 0 != 1");
    // Of two faults the first, in the order of the pipeline.
    assert_eq!(found(|p| (p.buffers().pos[2], p.buffers().pos[1]) = (0, 9)), "pos[1]: 0 != 9");
}

#[test]
fn the_comparison_tells_shapes_apart() {
    let other = Plan::filled(Shape::new(9, 2, 4, 8).unwrap(), 0, 0);
    assert_eq!(compare(&plan(), &other).unwrap_err().to_string(), "shape.tile: 4 != 8");
}

/// Words from a device that never wrote any are compared, not believed.
#[test]
fn the_comparison_survives_arbitrary_words() {
    let unwritten = Plan::filled(shape(), POLLUTION, 3);
    assert_eq!(compare(&plan(), &unwritten).unwrap_err().to_string(), "meta[0]: 4 != 3735928559");
    compare(&unwritten, &unwritten).unwrap();
    compare(&unwritten, &Plan::filled(shape(), POLLUTION, 0)).unwrap();
    check_untouched(&unwritten, POLLUTION).unwrap();
}

/// A word written beyond the defined ones is found: behind R, behind n, and in the spare words.
#[test]
fn a_word_too_many_is_found() {
    let mut clean = Plan::filled(shape(), POLLUTION, 2);
    build(Variant::default(), &shape(), &IDS, &[0; 18], &mut clean.buffers()).unwrap();
    check_untouched(&clean, POLLUTION).unwrap();
    let found = |plant: fn(&mut Plan)| {
        let mut touched = clean.clone();
        plant(&mut touched);
        check_untouched(&touched, POLLUTION).unwrap_err().to_string()
    };
    assert_eq!(clean.rows(), 16);
    assert_eq!(found(|p| p.buffers().stok[16] = -1), "stok[16]: -559038737 != -1");
    assert_eq!(found(|p| p.buffers().sw[17] = 0), "sw[17]: 3735928559 != 0");
    assert_eq!(found(|p| p.buffers().tiles[12] = 0), "tiles[4, 0]: 3735928559 != 0");
    assert_eq!(found(|p| p.buffers().pos[18] = -1), "pos[18]: -559038737 != -1");
    assert_eq!(found(|p| p.buffers().meta[12] = 0), "meta[12]: 3735928559 != 0");
    assert_eq!(found(|p| p.buffers().bcnt[4] = 0), "bcnt[1, 0]: 3735928559 != 0");
}
