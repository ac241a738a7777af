// How the 256 threads of a workgroup order what they hold, on any adapter. order_subgroups.wgsl has the same functions.

// A thread's place: number `first + lane`.
struct Place {
    first: u32,
    lane: u32,
    size: u32,
}

fn take_place(thread: u32) -> Place {
    return Place(thread, 0u, 1u);
}

var<workgroup> by_place: array<vec4<u32>, 256>;

// Sums of the first three over the places up to this one, and the maximum of the fourth.
fn running(place: Place, mine: vec4<u32>) -> vec4<u32> {
    let at = place.first;
    by_place[at] = mine;
    for (var step = 1u; step < 256u; step <<= 1u) {
        workgroupBarrier();
        var before = vec4(0u);
        if at >= step {
            before = by_place[at - step];
        }
        workgroupBarrier();
        let own = by_place[at];
        by_place[at] = vec4(own.xyz + before.xyz, max(own.w, before.w));
    }
    workgroupBarrier();
    let all = by_place[at];
    workgroupBarrier();
    return all;
}
