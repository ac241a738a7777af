// A plan's rows laid out one after another; a workgroup for each row. The products need none of this.
//   gather    XS[r] = f16(x[stok[r]] * 2^-s), s the row's range exponent (0 unless it is needed), from f32
//   gather_h  XS[r] = x[stok[r]], from the f16 that the producer wrote
// A padding row is zeros, and its exponent is 0. Rows beyond the plan's R are left alone.

struct Params {
    x: View,
    out: View,
    exponents: View,
    stok: View,
    meta_words: View,
    count: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> x: array<u32>; // f32, or two f16 to a word
@group(0) @binding(2) var<storage, read_write> out: array<atomic<u32>>;
@group(0) @binding(3) var<storage, read_write> exponents: array<i32>;
@group(0) @binding(4) var<storage, read_write> stok: array<i32>;
@group(0) @binding(5) var<storage, read_write> meta_words: array<u32>;

struct Row {
    token: i32, // -1: padding
    there: u32, // whether the plan has this row
}

var<workgroup> found: Row;

fn look_up(row: u32) -> Row {
    if row >= p.count || row >= meta_words[p.meta_words.first + META_ROWS] {
        return Row(-1, 0u);
    }
    return Row(stok[p.stok.first + row], 1u);
}

// Has one thread look; a kernel loads `found` itself, as with `find_work` in tile.wgsl.
fn find_source(row: u32, thread: u32) {
    if thread == 0u {
        found = look_up(row);
    }
}

// Stores columns c and c + 1 of a row into their word; one of them may be a neighbour's, or nobody's.
fn store(first: u32, c: u32, two: u32) {
    let word = (first + c) >> 1u;
    let has_low = c < p.out.cols; // c may be -1
    let has_high = c + 1u < p.out.cols;
    if has_low && has_high {
        atomicStore(&out[word], two);
    } else if has_low {
        atomicAnd(&out[word], 0xffff0000u);
        atomicOr(&out[word], two & 0xffffu);
    } else if has_high {
        atomicAnd(&out[word], 0xffffu);
        atomicOr(&out[word], two & 0xffff0000u);
    }
}

@compute @workgroup_size(256)
fn gather(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = group_number(group, groups);
    find_source(row, thread);
    let source = workgroupUniformLoad(&found);
    if source.there == 0u {
        return;
    }
    let begin = at(p.x, u32(max(source.token, 0)), 0u);
    var most = 0.0;
    for (var c = thread; source.token >= 0 && c < p.x.cols; c += 256u) {
        most = max(most, abs(bitcast<f32>(x[begin + c])));
    }
    let s = range_exponent(group_max(thread, most));
    if thread == 0u {
        exponents[p.exponents.first + row] = s;
    }
    let scale = power_of_two(-s);
    let first = at(p.out, row, 0u);
    for (var i = thread; i < p.out.cols / 2u + 1u; i += 256u) {
        let c = 2u * i - (first & 1u);
        var two = 0u;
        if source.token >= 0 && c < p.x.cols {
            two = float_to_half(bitcast<f32>(x[begin + c]) * scale);
        }
        if source.token >= 0 && c + 1u < p.x.cols {
            two |= float_to_half(bitcast<f32>(x[begin + c + 1u]) * scale) << 16u;
        }
        store(first, c, two);
    }
}

fn half_of_x(element: u32) -> u32 {
    return (x[element >> 1u] >> (16u * (element & 1u))) & 0xffffu;
}

@compute @workgroup_size(256)
fn gather_h(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = group_number(group, groups);
    find_source(row, thread);
    let source = workgroupUniformLoad(&found);
    if source.there == 0u {
        return;
    }
    let begin = at(p.x, u32(max(source.token, 0)), 0u);
    let first = at(p.out, row, 0u);
    let together = (begin & 1u) == (first & 1u); // both columns of a word are in one word of x, too
    for (var i = thread; i < p.out.cols / 2u + 1u; i += 256u) {
        let c = 2u * i - (first & 1u);
        let both = c < p.x.cols && c + 1u < p.x.cols;
        var two = 0u;
        if source.token < 0 {
            // zeros
        } else if both && together {
            two = x[(begin + c) >> 1u];
        } else {
            if c < p.x.cols {
                two = half_of_x(begin + c);
            }
            if c + 1u < p.x.cols {
                two |= half_of_x(begin + c + 1u) << 16u;
            }
        }
        store(first, c, two);
    }
}
