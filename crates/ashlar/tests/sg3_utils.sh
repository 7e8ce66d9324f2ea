# What sg3_utils say of unit $A, 64 MiB of 512-byte blocks, and $B beside it; of $C, 64 MiB that have
# room for 32, and $D, with protection information of type 1. A step begins with `#:`.

#: who it is
says sg_inq $A -- 'PDT=0 ' 'version=0x06' 'CmdQue=1' 'HiSUP=1' 'identification: ASHLAR' \
    'identification: VIRTUAL DISK' 'serial number: [0-9a-f]{16}$'
sg_vpd -p sv $A >/tmp/pages
fact /tmp/pages '\[sv\]' '\[sn\]' '\[di\]' '\[ei\]' '\[bl\]' '\[bdc\]' '\[lbpv\]'
for page in $(sed -n 's/.*\[\(.*\)\].*/\1/p' /tmp/pages); do says sg_vpd -p $page $A -- 'VPD page'; done
says sg_vpd -p sn $A -- "serial number: $(sg_inq $A | sed -n 's/.*serial number: //p')"
says sg_vpd -p di $A -- 'designator type: NAA' '0x6[0-9a-f]{31}$' 'T10 vendor identification' \
    'vendor id: ASHLAR' 'Relative target port: 0x1' '^ *iqn.2026-11.test.ashlar:house$' \
    '^ *iqn.2026-11.test.ashlar:house,t,0x0001$'
says sg_vpd -p ei $A -- 'HEADSUP=1 ORDSUP=1 SIMPSUP=1' 'V_SUP=1' 'LUICLR=1'
says sg_vpd -p bl $A -- 'compare and write length: [1-9]' 'Maximum transfer length: [1-9]' \
    'unmap LBA count: [1-9]' 'unmap block descriptor count: [1-9]' 'atomic transfer length: [1-9]'
says sg_vpd -p lbpv $A -- 'LBPU\): 1' 'LBPWS\): 1' 'LBPWS10\): 1' 'LBPRZ\): 1' 'thin provisioned'
[ "$(sg_vpd -q -p di_lu $A | md5sum)" != "$(sg_vpd -q -p di_lu $B | md5sum)" ]
ends 5 sg_raw -r 252 $A 12 01 81 00 fc 00

#: how large it is
says sg_readcap $A -- 'Last LBA=131071 ' 'block length=512 ' 'Device size: 67108864 '
says sg_readcap -l $A -- 'prot_en=0' 'lbpme=1, lbprz=1' 'Last LBA=131071 ' 'exponent=3 '
says sg_luns $A -- '^ *0000000000000000$' '^ *0001000000000000$'
[ $(sg_luns $A | grep -c '000000$') = 4 ]
says sg_turs -n 5 $A -- 'Completed 5 Test Unit Ready commands with 0 errors'
says sg_requests $A -- 'No Sense'

#: what it can do
sg_opcodes $A >/tmp/opcodes
fact /tmp/opcodes 'Read\(16\)' 'Write same\(16\)' 'Unmap' 'Compare and write' 'Orwrite' \
    'Write atomic\(16\)' 'Get LBA status' 'Persistent reserve out, register and move' 'Reserve\(10\)' \
    'Report luns' 'Report supported operation codes' 'Format Unit' 'Verify\(12\)' 'Pre-fetch\(16\)'
[ $(grep -c '^ [0-9a-f][0-9a-f] ' /tmp/opcodes) -ge 60 ]
says sg_opcodes -R -o 0x88 $A -- 'Opcode=0x88' 'Read\(16\)' 'conforming to SCSI standard' \
    '88 .. ff ff ff ff ff ff ff ff ff ff ff ff' 'recommended timeout: [1-9]'
says sg_opcodes -o 0xee $A -- 'is NOT supported'

says sg_opcodes -t $A -- 'Abort task set' 'Clear ACA' 'Logical unit reset' 'I_T nexus reset'

#: what it counts, and its clock
sg_logs -a $A >/tmp/logs 2>&1
fact /tmp/logs 'Supported log pages' 'Write error counter page' 'Read error counter page' \
    'Verify error counter page' 'Background scan results page' \
    'Total bytes processed = [1-9]' 'General [Ss]tatistics' 'Informational Exceptions page'
says sg_timestamp -o -N $A -- 'power on or by hard reset'
ends 0 sg_timestamp --seconds=1700000000 $A
says sg_timestamp -o -N $A -- 'SET TIMESTAMP'
says sg_timestamp -S $A -- '^17000000[0-9][0-9]$'

#: mode pages
sg_modes -a $A >/tmp/modes
fact /tmp/modes 'WP=0' 'DpoFua=1' 'Read-Write error recovery' 'Caching' 'Control' 'Informational'
sg_modes -r -p 8 $A >/tmp/before
says sg_wr_mode -p 8 $A -- '[08]8 12 04'
sg_raw -s 24 -i /dev/zero $A 15 10 00 00 18 00 >/tmp/zero 2>&1 && false
says sg_turs $A --
sg_modes -r -p 8 $A >/tmp/after
cmp /tmp/before /tmp/after

#: read, verify, compare
head -c 65536 /dev/urandom >/tmp/data
dd if=/tmp/data of=$A bs=64k count=1 conv=fsync 2>/dev/null
ends 0 sg_verify -l 0 -c 128 $A
ends 0 sg_verify -E 1 -n 4096 -l 0 -c 8 -i /tmp/data $A
ends 14 sg_verify -E 1 -n 4096 -l 8 -c 8 -i /tmp/data $A
ends 0 sg_sync $A
ends 0 sg_sync -l 8 -c 8 $A
(dd if=/tmp/data bs=512 skip=16 count=1; tr '\0-\377' '\377' </dev/zero | head -c 512) 2>/dev/null >/tmp/both
ends 0 sg_compare_and_write -l 16 -n 1 -i /tmp/both -x 1024 $A
ends 14 sg_compare_and_write -l 16 -n 1 -i /tmp/both -x 1024 $A
dd if=$A bs=512 skip=16 count=1 iflag=direct 2>/dev/null >/tmp/got
tail -c 512 /tmp/both | cmp - /tmp/got
head -c 512 /tmp/data >/tmp/one
ends 0 sg_write_x --atomic=0 --16 --lba=64 --num=1 --in=/tmp/one $A
dd if=$A bs=512 skip=64 count=1 iflag=direct 2>/dev/null | cmp - /tmp/one
# Longer than what a file keeps at a power cut.
head -c 4096 /tmp/data >/tmp/eight
ends 5 sg_write_x --atomic=0 --16 --lba=64 --num=8 --in=/tmp/eight $A
tr '\0-\377' '\360' </dev/zero | head -c 4096 >/tmp/mask
ends 0 sg_write_x --or --16 --lba=64 --num=8 --in=/tmp/mask $A
says sg_raw -r 512 $A 88 00 00 00 00 00 00 00 00 40 00 00 00 01 00 00 -- \
    '^ *00 +([f][0-9a-f] +){8}'
ends 22 sg_raw -r 512 $A 88 00 00 00 00 00 00 02 00 00 00 00 00 01 00 00
told compared

#: what is unmapped is gone
dd if=/tmp/data of=$B bs=64k count=1 conv=fsync 2>/dev/null
says sg_get_lba_status -l 0 $B -- 'LBA: 0x0000000000000000' 'mapped'
ends 0 sg_unmap -f -l 32 -n 32 $B
says sg_get_lba_status -l 32 $B -- 'LBA: 0x0000000000000020' 'deallocated'
ends 0 sg_write_same -U -l 96 -n 16 -x 512 -i /dev/zero $B
says sg_get_lba_status -l 96 $B -- 'LBA: 0x0000000000000060' 'deallocated'
ends 0 sg_write_same -l 0 -n 8 -x 512 -i /tmp/data $B
dd if=$B bs=512 count=128 iflag=direct 2>/dev/null >/tmp/got
dd if=/tmp/got bs=512 skip=7 count=1 2>/dev/null | cmp - /tmp/data -n 512
dd if=/tmp/got bs=512 skip=32 count=32 2>/dev/null | cmp - /dev/zero -n 16384
dd if=/tmp/got bs=512 skip=96 count=16 2>/dev/null | cmp - /dev/zero -n 8192
dd if=/tmp/got bs=512 skip=8 count=24 2>/dev/null >/tmp/kept
dd if=/tmp/data bs=512 skip=8 count=24 2>/dev/null | cmp - /tmp/kept
told unmapped

#: copies that it makes by itself
dd if=/tmp/data of=$A bs=64k seek=64 count=1 conv=fsync 2>/dev/null
generic() { echo /dev/$(ls /sys/block/${1##*/}/device/scsi_generic); }
sg_xcopy if=$(generic $A) of=$(generic $B) skip=8192 seek=16384 count=128 bpt=64 >/tmp/xcopy 2>&1 || {
    cat /tmp/xcopy; false; }
blockdev --flushbufs $B
dd if=$B bs=512 skip=16384 count=128 iflag=direct 2>/dev/null | cmp - /tmp/data
told copied
says sg_copy_results -p $A -- 'Maximum target descriptor count: [1-9]'

#: reservations
says sg_persist -i -c $A -- 'Compatible Reservation Handling\(CRH\): 1' 'Specify Initiator Ports.*: 1' \
    'Type Mask Valid\(TMV\): 1' 'Write Exclusive, all registrants: 1' 'Exclusive Access: 1'
says sg_persist -i -k $A -- 'NO registered reservation keys'
told write
says sg_persist -o -G -S 0xabc $A --
says sg_persist -i -k $A -- '1 registered reservation key' '0xabc'
ends 24 sg_persist -o -R -K 0xdef -T 5 $A
says sg_persist -o -R -K 0xabc -T 5 $A --
says sg_persist -i -r $A -- 'Key=0xabc' 'LU_SCOPE' 'Write Exclusive, registrants only'
says sg_persist -i -s $A -- 'Key=0xabc' 'is reservation holder|<< Reservation holder >>' \
    'iqn.2026-11.test.ashlar:guest,i,0x'
told conflict write
told read
says sg_persist -o -L -K 0xabc -T 5 $A --
told write
says sg_persist -o -R -K 0xabc -T 3 $A --
told conflict read
says sg_persist -o -C -K 0xabc $A --
told read
says sg_persist -i -k $A -- 'NO registered reservation keys'
ends 0 sg_raw $A 16 00 00 00 00 00
told conflict write
ends 0 sg_raw $A 17 00 00 00 00 00
told write

#: resets and attentions
ends 0 sg_reset -d $A
says sg_turs -n 2 $A -- 'Completed 2 Test Unit Ready commands with 1 errors'
ends 0 sg_turs $A
says sg_requests $A -- 'No Sense'

#: formats
says sg_format $B -- 'Number of blocks=131072' 'Block size=512'
dd if=/tmp/data of=$B bs=64k count=1 conv=fsync 2>/dev/null
sg_format --format -Q --wait $B >/tmp/format 2>&1 || { cat /tmp/format; false; }
dd if=$B bs=64k count=1 iflag=direct 2>/dev/null | cmp - /dev/zero -n 65536
says sg_turs $B --

#: ports and their states
says sg_rtpg -d $A -- 'target port group id : 0x1 ' '0x00 \(active/optimized\)' 'T_SUP : 1' \
    'target port count : 01' '^ *0x01$'
ends 0 sg_stpg --active --tp=1 $A
says sg_rtpg -d $A -- '0x01 \(active/non optimized\)'
ends 0 sg_stpg --optimized --tp=1 $A
says sg_rtpg -d $A -- '0x00 \(active/optimized\)'

#: how full it is
within 5 sg_turs $C
says sg_vpd -p lbpv $C -- 'Threshold exponent: [1-9]' 'LBPU\): 1' 'thin provisioned'
says sg_modes -p 0x1c,2 $C -- '[Pp]rovisioning'
sg_logs -p 0xc $C >/tmp/space 2>&1
fact /tmp/space '[Pp]rovisioning' '[Aa]vailable LBA mapping' '[Uu]sed LBA mapping'
soft='thin provisioning soft threshold'
[ $(dmesg | grep -c "$soft") = 0 ]
dd if=/dev/urandom of=$C bs=1M count=28 oflag=direct 2>/dev/null
crossed() { sg_turs $C; dmesg | grep -q "$soft"; }
within 30 crossed
# Once.
sg_turs $C
[ $(dmesg | grep -c "$soft") = 1 ]
sg_logs -p 0xc $C >/tmp/less 2>&1
cmp -s /tmp/space /tmp/less && false
ends 0 sg_unmap -f -l 0 -n 131072 $C

#: what protects it
within 5 sg_turs $D
says sg_readcap -l $D -- 'prot_en=1' 'p_type=0'
says sg_vpd -p ei $D -- 'GRD_CHK=1' 'APP_CHK=1' 'REF_CHK=1'
sg_opcodes $D >/tmp/opcodes
grep -q -E 'Read\(32\)|Write\(32\)' /tmp/opcodes && false
# The kernel asks for none of it.
dd if=/tmp/data of=$D bs=64k count=1 oflag=direct 2>/dev/null
dd if=$D bs=64k count=1 iflag=direct 2>/dev/null | cmp - /tmp/data
# Block 8 with its tuple: the reference tag is its number.
sg_raw -r 520 -o /tmp/woven $D 88 20 00 00 00 00 00 00 00 08 00 00 00 01 00 00 >/dev/null 2>&1
[ $(wc -c </tmp/woven) = 520 ]
dd if=/tmp/data bs=512 skip=8 count=1 2>/dev/null | cmp -n 512 - /tmp/woven
[ "$(tail -c 6 /tmp/woven | od -An -tx1)" = ' 00 00 00 00 00 08' ]
ends 0 sg_verify -P 1 -l 0 -c 128 $D
# There it is good, elsewhere it is not.
ends 0 sg_raw -s 520 -i /tmp/woven $D 8a 20 00 00 00 00 00 00 00 08 00 00 00 01 00 00
ends 40 sg_raw -s 520 -i /tmp/woven $D 8a 20 00 00 00 00 00 00 00 09 00 00 00 01 00 00
(head -c 1 /dev/zero; tail -c +2 /tmp/woven) >/tmp/bent
cmp -s /tmp/bent /tmp/woven || ends 40 sg_raw -s 520 -i /tmp/bent $D 8a 20 00 00 00 00 00 00 00 08 00 00 00 01 00 00
# COMPARE AND WRITE with the tuples of both halves; /rig/old, /rig/new: block 8 with its tuple, and
# /rig/bent, /rig/moved, /rig/tagged: /rig/new with another guard, reference and application tag.
block() { sg_raw -r 520 -o /tmp/block $D 88 20 00 00 00 00 00 00 00 08 00 00 00 01 00 00 >/dev/null 2>&1; }
is() { block; cmp /tmp/block $1; }
swaps() { sg_compare_and_write --wrprotect=1 -x 1040 -l 8 -i $1 -D $2 -v $D; }
ends 0 sg_raw -s 520 -i /rig/old $D 8a 20 00 00 00 00 00 00 00 08 00 00 00 01 00 00
for bad in bent moved; do
    ends 40 swaps /rig/old /rig/$bad
    is /rig/old
done
ends 40 swaps /rig/bent /rig/new
is /rig/old
ends 14 swaps /rig/new /rig/old
fact /tmp/ends '[Mm]iscompare'
is /rig/old
ends 0 swaps /rig/old /rig/new
is /rig/new
told swapped
ends 40 swaps /rig/new /rig/bent
fact /tmp/ends '[Gg]uard check failed'
is /rig/new
# VERIFY compares tuples, and says which of their fields differs.
differs() { sg_verify -E $1 -n 520 -P 1 -l 8 -c 1 -i $2 -v $D; }
for bytchk in 1 3; do
    ends 0 differs $bytchk /rig/new
    ends 14 differs $bytchk /rig/old
    fact /tmp/ends 'Miscompare during verify'
    ends 14 differs $bytchk /rig/tagged
    fact /tmp/ends '[Aa]pplication tag check failed'
    ends 40 differs $bytchk /rig/bent
done
# Another type, with the commands that it has.
sg_format --format -Q --wait --fmtpinfo=3 $D >/tmp/format 2>&1 || { cat /tmp/format; false; }
within 5 sg_turs $D
says sg_readcap -l $D -- 'prot_en=1' 'p_type=1'
says sg_opcodes $D -- 'Read\(32\)' 'Write\(32\)'
ends 9 sg_raw -r 520 $D 88 20 00 00 00 00 00 00 00 08 00 00 00 01 00 00
sg_raw -r 520 -o /tmp/long $D 7f 00 00 00 00 00 00 18 00 09 20 00 00 00 00 00 00 00 00 08 \
    00 00 00 00 00 00 00 00 00 00 00 01 >/dev/null 2>&1
[ $(wc -c </tmp/long) = 520 ]

#: what is erased for good
dd if=/tmp/data of=$B bs=64k count=1 conv=fsync 2>/dev/null
ends 0 sg_sanitize --crypto --quick --wait $B
dd if=$B bs=64k count=1 iflag=direct 2>/dev/null >/tmp/got
cmp -s /tmp/got /tmp/data && false
told erased
ends 0 sg_sanitize --overwrite --zero --quick --wait $B
dd if=$B bs=64k count=1 iflag=direct 2>/dev/null | cmp - /dev/zero -n 65536
ends 0 sg_sanitize --block --quick --wait $B
told nothing
ends 9 sg_sanitize --overwrite --zero --quick --wait $A
