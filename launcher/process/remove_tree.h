// Removes a folder with all that is in it, and never what is mounted there: a share that somebody has mounted below is
// not ours to empty. `rm --one-file-system` does not see a bind mount of the same file system, so this looks at
// mountinfo first, and then lets the kernel say for each folder whether it is still of the same mount.
//
// Links are removed and not followed. Folders of this user that he cannot enter are made so that he can. It keeps two
// descriptors open, however deep the tree is.
//
// Thread: any.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/result.h"

namespace hvd::launch {

// What is mounted at `path` or below it, as "/tmp/x/share (nfs4 server:/export)". `path` is absolute and holds no link.
std::vector<std::string> mounts_within(const std::string& mountinfo, const std::string& path);

// kResource: something is mounted there, and all is left as it is. Any other error: it names the first file that could
// not be removed, and says how many there are; what could be removed is gone. A `path` that is not there is none.
// `mountinfo` is the file to look at.
Result<void> remove_tree(const std::string& path, const std::string& mountinfo = "/proc/self/mountinfo");

}  // namespace hvd::launch
