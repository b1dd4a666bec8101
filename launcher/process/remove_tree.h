// remove_tree() removes a folder with everything in it, but never what is mounted there: a share that somebody has
// mounted below is not ours to empty. `rm --one-file-system` does not see a bind mount of the same file system. So this
// looks at mountinfo first, and then asks the kernel for each folder whether it is still on the same mount.
//
// Links are removed and not followed. Folders of this user that he may not enter get the right first. It keeps two
// descriptors open, however deep the tree is.
//
// Thread: any.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/result.h"

namespace hvd::launch {

// Returns mounts at `path` or below, as "/tmp/x/share (nfs4 server:/export)". `path` is absolute and holds no link.
std::vector<std::string> mounts_within(const std::string& mountinfo, const std::string& path);

// kResource means that something is mounted there, and everything is left as it is. Any other error names the first
// file that could not be removed, and says how many there are; the rest is gone. A missing `path` is no error.
// `mountinfo` is the file to look at.
Result<void> remove_tree(const std::string& path, const std::string& mountinfo = "/proc/self/mountinfo");

}  // namespace hvd::launch
