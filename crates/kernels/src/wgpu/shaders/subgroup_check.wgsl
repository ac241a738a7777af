// What an adapter's subgroup operations give, for subgroup_check.rs to compare with what they have to: WORDS words a thread.

struct Params {
    count: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> found: array<u32>; // [workgroups, 256, WORDS]

const WORDS = 20u;

// A number of a thread, without order.
fn number_of(thread: u32) -> u32 {
    return (thread * 2654435761u) >> 20u;
}

// How often a thread goes round a loop of its own.
fn turns_of(thread: u32) -> u32 {
    return number_of(thread) % 5u;
}

@compute @workgroup_size(256)
fn subgroup_check(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) id: u32,
) {
    let number = group_number(group, groups);
    if number >= p.count {
        return;
    }
    let mine = number_of(thread);
    let to = (number * 256u + thread) * WORDS;
    found[to] = size;
    found[to + 1u] = id;
    found[to + 2u] = subgroupBroadcastFirst(thread);
    found[to + 3u] = subgroupAdd(1u);
    found[to + 4u] = subgroupExclusiveAdd(1u);
    found[to + 5u] = subgroupAdd(mine);
    found[to + 6u] = subgroupExclusiveAdd(mine);
    found[to + 7u] = subgroupMax(mine);
    found[to + 8u] = subgroupMin(mine);
    let odd = subgroupBallot((mine & 1u) == 1u);
    found[to + 9u] = odd.x;
    found[to + 10u] = odd.y;
    found[to + 11u] = odd.z;
    found[to + 12u] = odd.w;
    found[to + 13u] = bitcast<u32>(subgroupAdd(f32(mine) * 0.25));
    found[to + 14u] = bitcast<u32>(subgroupMax(-f32(mine)));
    // The thread beside this one, where there is one.
    found[to + 15u] = subgroupShuffle(mine, select(id, id ^ 1u, (id ^ 1u) < size));
    // The threads of a subgroup come together again behind a loop that each leaves when it likes, and behind a branch.
    var turned = 0u;
    for (var turn = 0u; turn < turns_of(thread); turn++) {
        turned += mine + turn;
    }
    found[to + 16u] = subgroupAdd(turned);
    var branched = 1u;
    if (mine & 2u) == 2u {
        branched = mine;
    }
    found[to + 17u] = subgroupAdd(branched);
    // And where subgroups, but not their threads, part.
    var halves = 0u;
    if (subgroupBroadcastFirst(mine) & 1u) == 0u {
        halves = subgroupAdd(mine) + 1u;
    }
    found[to + 18u] = halves;
    found[to + 19u] = subgroupBroadcastFirst(mine);
}
