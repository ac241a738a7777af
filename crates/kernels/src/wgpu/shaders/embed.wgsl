// out[t, g, :] = table[ids[t, g], :]; a thread decodes eight columns.
//
// An id outside the table is never followed. `embed_check` notes the first such entry, `embed_note` its id. A table that
// lies in several buffers is read one buffer at a time: a row is written by the call whose buffer it is in.

struct Params {
    ids: View,
    out: View,
    part: Part,
    count: u32,
    ids_per_row: u32,
    eights: u32,  // threads for a row
    total: u32,   // threads
    limit: u32,   // rows of the table
    status: u32,  // index of this op's two words
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> ids: array<i32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<storage, read> table: array<u32>;
@group(0) @binding(4) var<storage, read> codebooks: array<u32>;
@group(0) @binding(5) var<storage, read_write> status: array<atomic<u32>>;

fn weight_word(i: u32) -> u32 {
    return table[i];
}

fn table_word(i: u32) -> u32 {
    return codebooks[i];
}

fn id_of(entry: u32) -> u32 {
    return bitcast<u32>(ids[at(p.ids, entry / p.ids_per_row, 0u) + entry % p.ids_per_row]);
}

@compute @workgroup_size(256)
fn embed(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let number = group_number(group, groups) * 256u + thread;
    if number >= p.total {
        return;
    }
    let entry = number / p.eights;
    let c = number % p.eights * 8u;
    let id = id_of(entry);
    if id >= p.limit || id < p.part.first || id >= p.part.last {
        return;
    }
    var eight = weights_at(byte_of(p.part, 0u, id), c);
    let to = at(p.out, entry / p.ids_per_row, entry % p.ids_per_row);
    for (var j = 0u; j < 8u && c + j < p.out.cols; j++) {
        out[to + c + j] = select(eight.b[j & 3u], eight.a[j & 3u], j < 4u);
    }
}

@compute @workgroup_size(256)
fn embed_check(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let entry = group_number(group, groups) * 256u + thread;
    if entry < p.total && id_of(entry) >= p.limit {
        atomicMin(&status[p.status], entry);
    }
}

@compute @workgroup_size(1)
fn embed_note() {
    let entry = atomicLoad(&status[p.status]);
    if entry != 0xffffffffu {
        atomicStore(&status[p.status + 1u], id_of(entry));
    }
}
