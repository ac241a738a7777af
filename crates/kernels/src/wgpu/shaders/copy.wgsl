// fill: dst = value.  copy: dst[r, g, c] = src[r, g or 0, c], 32-bit words as they are.  add: dst += src.
// fill_half, copy_half, scatter_half: the same into f16, from a value, from f32, from f16.
//
// A 16-bit element shares its word with a neighbour that may belong to somebody else: a thread writes a word's two halves
// together where both are its group's, and only its own half, atomically, where they are not.

struct Params {
    src: View,
    dst: View,
    count: u32,
    groups: u32,
    src_groups: u32,
    value: u32, // bits
    total: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> src: array<u32>;
@group(0) @binding(2) var<storage, read_write> dst: array<u32>;
@group(0) @binding(2) var<storage, read_write> halves: array<atomic<u32>>;

// (row, group, item) of a thread, `each` items in a group; `total` items in all.
fn place(each: u32, group: vec3<u32>, groups: vec3<u32>, thread: u32) -> vec4<u32> {
    let i = group_number(group, groups) * 256u + thread;
    let outer = i / each;
    return vec4(outer / p.groups, outer % p.groups, i % each, select(0u, 1u, i < p.total));
}

@compute @workgroup_size(256)
fn fill(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = place(p.dst.cols, group, groups, thread);
    if i.w == 1u {
        dst[at(p.dst, i.x, i.y) + i.z] = p.value;
    }
}

@compute @workgroup_size(256)
fn copy(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = place(p.dst.cols, group, groups, thread);
    if i.w == 1u {
        dst[at(p.dst, i.x, i.y) + i.z] = src[at(p.src, i.x, min(i.y, p.src_groups - 1u)) + i.z];
    }
}

@compute @workgroup_size(256)
fn add(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = place(p.dst.cols, group, groups, thread);
    if i.w == 1u {
        let to = at(p.dst, i.x, i.y) + i.z;
        dst[to] = bitcast<u32>(bitcast<f32>(dst[to]) + bitcast<f32>(src[at(p.src, i.x, i.y) + i.z]));
    }
}

// Word `item` of those that hold the group's elements: `low` and `high` are the f16 for its halves.
fn store(i: vec4<u32>, low: u32, high: u32) {
    let first = at(p.dst, i.x, i.y);
    let word = (first >> 1u) + i.z;
    let has_low = 2u * word >= first && 2u * word < first + p.dst.cols;
    let has_high = 2u * word + 1u < first + p.dst.cols;
    if has_low && has_high {
        atomicStore(&halves[word], low | (high << 16u));
    } else if has_low {
        atomicAnd(&halves[word], 0xffff0000u);
        atomicOr(&halves[word], low);
    } else if has_high {
        atomicAnd(&halves[word], 0xffffu);
        atomicOr(&halves[word], high << 16u);
    }
}

// Column of a word's low half, counted from the group's first; the high half's is the next. May be -1 (as u32).
fn column(i: vec4<u32>) -> u32 {
    let first = at(p.dst, i.x, i.y);
    return 2u * ((first >> 1u) + i.z) - first;
}

@compute @workgroup_size(256)
fn fill_half(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = place(p.dst.cols / 2u + 1u, group, groups, thread);
    if i.w == 1u {
        let half = float_to_half(bitcast<f32>(p.value));
        store(i, half, half);
    }
}

@compute @workgroup_size(256)
fn copy_half(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = place(p.dst.cols / 2u + 1u, group, groups, thread);
    if i.w == 1u {
        let c = column(i);
        let begin = at(p.src, i.x, min(i.y, p.src_groups - 1u));
        var low = 0u;
        var high = 0u;
        if c < p.dst.cols {
            low = float_to_half(bitcast<f32>(src[begin + c]));
        }
        if c + 1u < p.dst.cols {
            high = float_to_half(bitcast<f32>(src[begin + c + 1u]));
        }
        store(i, low, high);
    }
}

fn half_of_src(element: u32) -> u32 {
    return (src[element >> 1u] >> (16u * (element & 1u))) & 0xffffu;
}

@compute @workgroup_size(256)
fn scatter_half(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = place(p.dst.cols / 2u + 1u, group, groups, thread);
    if i.w == 1u {
        let c = column(i);
        let begin = at(p.src, i.x, i.y);
        var low = 0u;
        var high = 0u;
        if c < p.dst.cols {
            low = half_of_src(begin + c);
        }
        if c + 1u < p.dst.cols {
            high = half_of_src(begin + c + 1u);
        }
        store(i, low, high);
    }
}
