// How the 256 threads of a workgroup order what they hold, by subgroups of any size (subgroup.wgsl). order.wgsl has the same
// functions for every adapter.

var<workgroup> by_place: array<vec4<u32>, 256>;

// Sums of the first three over the places up to this one, and the maximum of the fourth.
fn running(place: Place, mine: vec4<u32>) -> vec4<u32> {
    let here = subgroupInclusiveAdd(mine.xyz);
    let all = vec4(subgroupAdd(mine.xyz), subgroupMax(mine.w));
    // What each subgroup has altogether is at its first place, nothing at the others.
    by_place[place.first + place.lane] = select(vec4(0u), all, place.lane == 0u);
    workgroupBarrier();
    var earlier = vec4(0u);
    for (var first = 0u; first < place.first; first += place.size) {
        let at = first + place.lane;
        if at < place.first {
            earlier = vec4(earlier.xyz + by_place[at].xyz, max(earlier.w, by_place[at].w));
        }
    }
    workgroupBarrier();
    return vec4(here + subgroupAdd(earlier.xyz), max(all.w, subgroupMax(earlier.w)));
}
