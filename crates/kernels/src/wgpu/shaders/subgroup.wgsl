// Subgroups of whatever size, up to 128 threads. Nothing is assumed of a subgroup but that its threads are in one workgroup:
// how many it has is counted, also where subgroups of one workgroup differ, and where a workgroup's threads are in another
// order. Subgroup operations are called where all threads of a subgroup are.

// A thread's place among the subgroups of its workgroup, laid end to end: number `first + lane`. A subgroup has neighbouring
// places; which come first differs from call to call.
struct Place {
    first: u32, // place of the subgroup's first thread
    lane: u32,  // threads of the subgroup before this one
    size: u32,  // threads of the subgroup
}

var<workgroup> places_taken: atomic<u32>;

fn take_place(thread: u32) -> Place {
    if thread == 0u {
        atomicStore(&places_taken, 0u);
    }
    workgroupBarrier();
    let size = subgroupAdd(1u);
    let lane = subgroupExclusiveAdd(1u);
    var first = 0u;
    if lane == 0u {
        first = atomicAdd(&places_taken, size);
    }
    return Place(subgroupBroadcastFirst(first), lane, size);
}
