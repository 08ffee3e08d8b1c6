# In the guest: pkg/nfs/vfs's test of file systems that are cut off, TESTS, on each of its kinds.
failed=0
for kind in ext4 xfs; do
  echo "== $kind"
  (cd /run && VFS_TEST_CRASH=$kind TMPDIR=/run "$TESTS" -test.v -test.run '^TestCrash$') || failed=1
done
exit $failed
