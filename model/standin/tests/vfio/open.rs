//! From the paths to a device, and back.

use crate::rig::{
    READ_WRITE, Vfio, attach, device, errno, ioctl, ioctl_raw, is_inside, map, on_card, open, pages,
};
use std::{
    ffi::{CStr, c_int},
    fs,
    os::fd::{AsRawFd, OwnedFd},
};
use vfio_bindings::bindings::vfio::*;

fn status(group: &OwnedFd) -> u32 {
    let mut status = vfio_group_status { argsz: 8, flags: 0 };
    ioctl(group, 3, &raw mut status).expect("GROUP_GET_STATUS");
    status.flags
}

fn set_container(group: &OwnedFd, mut container: c_int) -> Result<c_int, c_int> {
    ioctl(group, 4, &raw mut container)
}

fn set_iommu(container: &OwnedFd, iommu: u32) -> Result<c_int, c_int> {
    ioctl_raw(container.as_raw_fd(), 2, iommu as usize)
}

#[test]
fn the_usual_way() {
    let said = on_card("open::the_usual_way", "", || {
        let vfio = Vfio::open();
        assert_eq!(ioctl_raw(vfio.container.as_raw_fd(), 0, 0), Ok(VFIO_API_VERSION as c_int));
        for (extension, known) in
            [(VFIO_TYPE1_IOMMU, 1), (VFIO_TYPE1v2_IOMMU, 1), (VFIO_UNMAP_ALL, 1), (7, 0)]
        {
            assert_eq!(
                ioctl_raw(vfio.container.as_raw_fd(), 1, extension as usize),
                Ok(known),
                "{extension}"
            );
        }
        assert_eq!(status(&vfio.group), VFIO_GROUP_FLAGS_VIABLE | VFIO_GROUP_FLAGS_CONTAINER_SET);
        let mut info = vfio_device_info { argsz: size_of::<vfio_device_info>() as u32, ..Default::default() };
        ioctl(&vfio.device, 7, &raw mut info).expect("DEVICE_GET_INFO");
        assert_eq!(info.flags, VFIO_DEVICE_FLAGS_PCI | VFIO_DEVICE_FLAGS_RESET);
        assert_eq!((info.num_regions, info.num_irqs), (9, 5));
        // Vendor and device of a ConnectX-5.
        assert_eq!(vfio.read(7, 0), Ok([0xb3, 0x15, 0x17, 0x10]));
    });
    assert!(is_inside() || said.ends_with("model: 0 violations\n"), "{said}");
}

#[test]
fn steps_in_the_wrong_order() {
    let said = on_card("open::steps_in_the_wrong_order", "", || {
        let container = open("/dev/vfio/vfio").expect("container");
        assert_eq!(set_iommu(&container, VFIO_TYPE1v2_IOMMU), Err(libc::EINVAL), "without a group");
        let page = pages(1);
        assert_eq!(map(&container, READ_WRITE, page, 0, 4096), Err(libc::EINVAL), "without an IOMMU");
        let group = open("/dev/vfio/5555").expect("group");
        assert_eq!(status(&group), VFIO_GROUP_FLAGS_VIABLE);
        assert_eq!(device(&group, "0000:01:00.0").err(), Some(libc::EINVAL), "without a container");
        assert_eq!(ioctl_raw(group.as_raw_fd(), 5, 0), Err(libc::EINVAL), "UNSET_CONTAINER of none");
        assert_eq!(set_container(&group, -1), Err(libc::EBADF));
        assert_eq!(set_container(&group, group.as_raw_fd()), Err(libc::EINVAL), "a group is no container");
        assert_eq!(set_container(&group, container.as_raw_fd()), Ok(0));
        assert_eq!(set_container(&group, container.as_raw_fd()), Err(libc::EINVAL), "twice");
        assert_eq!(device(&group, "0000:01:00.0").err(), Some(libc::EINVAL), "without an IOMMU");
        assert_eq!(set_iommu(&container, 2), Err(libc::ENODEV), "no such IOMMU");
        assert_eq!(set_iommu(&container, VFIO_TYPE1v2_IOMMU), Ok(0));
        assert_eq!(set_iommu(&container, VFIO_TYPE1v2_IOMMU), Err(libc::EINVAL), "twice");
        assert_eq!(device(&group, "0000:02:00.0").err(), Some(libc::ENODEV));
        let device = device(&group, "0000:01:00.0").expect("device");
        assert_eq!(ioctl_raw(group.as_raw_fd(), 5, 0), Err(libc::EBUSY), "the device is open");
        drop(device);
        assert_eq!(ioctl_raw(group.as_raw_fd(), 5, 0), Ok(0));
        assert_eq!(set_iommu(&container, VFIO_TYPE1v2_IOMMU), Err(libc::EINVAL), "empty again");
    });
    assert!(is_inside() || said.contains("type 2; this IOMMU is of type 1 or 3"), "{said}");
}

#[test]
fn numbers_are_read_by_kind_of_descriptor() {
    let said = on_card("open::numbers_are_read_by_kind_of_descriptor", "", || {
        let vfio = Vfio::open();
        let mut bytes = [0xffu8; 256];
        let at = &raw mut bytes;
        // 12 and 13: of a container IOMMU_GET_INFO and MAP_DMA, of a device hot reset, which this has not.
        assert_eq!(ioctl(&vfio.container, 12, at), Ok(0));
        assert_eq!(ioctl(&vfio.device, 12, at), Err(libc::ENODEV));
        assert_eq!(ioctl(&vfio.device, 13, at), Err(libc::ENOTTY));
        assert_eq!(ioctl(&vfio.container, 7, at), Err(libc::ENOTTY));
        assert_eq!(ioctl(&vfio.group, 7, at), Err(libc::ENOTTY));
        assert_eq!(ioctl(&vfio.group, 13, at), Err(libc::ENOTTY));
        assert_eq!(ioctl(&vfio.device, 3, at), Err(libc::ENOTTY));
        // A descriptor that is not of the card goes to the kernel.
        let file = fs::File::open("/proc/self/exe").expect("own program");
        assert_eq!(ioctl(&file, 13, at), Err(libc::ENOTTY));
        // No address, and a structure that is too small.
        for n in [3, 4, 6] {
            assert_eq!(ioctl_raw(vfio.group.as_raw_fd(), n, 0), Err(libc::EFAULT), "group {n}");
        }
        for n in [7, 8, 9, 10] {
            assert_eq!(ioctl_raw(vfio.device.as_raw_fd(), n, 0), Err(libc::EFAULT), "device {n}");
            let mut small = [0u8; 256];
            small[0] = 12;
            assert_eq!(ioctl(&vfio.device, n, &raw mut small), Err(libc::EINVAL), "device {n}");
        }
        for n in [12, 13, 14] {
            let mut small = [0u8; 256];
            small[0] = 12;
            assert_eq!(ioctl(&vfio.container, n, &raw mut small), Err(libc::EINVAL), "container {n}");
            assert_eq!(ioctl_raw(vfio.container.as_raw_fd(), n, 0), Err(libc::EFAULT), "container {n}");
        }
        let mut status = vfio_group_status { argsz: 7, flags: 0 };
        assert_eq!(ioctl(&vfio.group, 3, &raw mut status), Err(libc::EINVAL));
    });
    // What is not done is said once.
    let not_done = "ioctl 0x3b71 of a VFIO group is not done";
    assert!(is_inside() || said.matches(not_done).count() == 1, "{said}");
}

#[test]
fn closed_and_opened_again() {
    on_card("open::closed_and_opened_again", "", || {
        for round in 0..20 {
            let vfio = Vfio::open();
            assert_eq!(open("/dev/vfio/5555").err(), Some(libc::EBUSY), "a group is opened once");
            assert_eq!(vfio.read(7, 4), Ok([2u8, 0]), "round {round}: memory is on, bus mastering is off");
            vfio.write(7, 4, &[6, 0]).expect("command register");
            assert_eq!(map(&vfio.container, READ_WRITE, pages(1), 0x1000, 4096), Ok(0), "round {round}");
            // A copy keeps the device open.
            let copy = vfio.device.try_clone().expect("dup");
            drop(vfio.device);
            assert_eq!(ioctl_raw(vfio.group.as_raw_fd(), 5, 0), Err(libc::EBUSY));
            drop((copy, vfio.group, vfio.container));
        }
    });
}

#[test]
fn two_functions_in_one_container_and_in_two() {
    on_card("open::two_functions_in_one_container_and_in_two", "ports=2", || {
        let page = pages(1);
        let first = open("/dev/vfio/vfio").expect("container");
        let groups = [attach(&first, 0), attach(&first, 1)];
        set_iommu(&first, VFIO_TYPE1v2_IOMMU).expect("SET_IOMMU");
        assert_eq!(map(&first, READ_WRITE, page, 0x1000, 4096), Ok(0));
        let devices = [
            device(&groups[0], "0000:01:00.0").expect("device"),
            device(&groups[1], "0000:01:00.1").expect("device"),
        ];
        assert_eq!(device(&groups[1], "0000:01:00.0").err(), Some(libc::ENODEV), "that of the other group");
        drop((devices, groups, first));

        // Each container has addresses of its own.
        let (one, other) =
            (open("/dev/vfio/vfio").expect("container"), open("/dev/vfio/vfio").expect("container"));
        let groups = [attach(&one, 0), attach(&other, 1)];
        for container in [&one, &other] {
            set_iommu(container, VFIO_TYPE1v2_IOMMU).expect("SET_IOMMU");
            assert_eq!(map(container, READ_WRITE, page, 0x1000, 4096), Ok(0));
            assert_eq!(map(container, READ_WRITE, page, 0x1000, 4096), Err(libc::EEXIST));
        }
        drop(groups);
    });
}

#[test]
fn what_sysfs_says() {
    on_card("open::what_sysfs_says", "part=cx6,ports=2", || {
        let folder = "/sys/bus/pci/devices/0000:01:00.1";
        assert_eq!(fs::read_to_string(format!("{folder}/vendor")).expect("vendor"), "0x15b3\n");
        assert_eq!(fs::read_to_string(format!("{folder}/device")).expect("device"), "0x101b\n");
        let group = fs::read_link(format!("{folder}/iommu_group")).expect("link");
        assert_eq!(group.file_name().and_then(|name| name.to_str()), Some("5556"));
        assert_eq!(mode(c"/dev/vfio/5556"), Ok(libc::S_IFCHR | 0o600));
        assert_eq!(mode(c"/sys/bus/pci/devices/0000:01:00.1/"), Ok(libc::S_IFDIR | 0o755));
        assert_eq!(mode(c"/sys/bus/pci/devices/0000:01:00.2/"), Err(libc::ENOENT));
        assert_eq!(mode(c"/sys/bus/pci/devices/0000:01:00.1/driver_override"), Err(libc::ENOENT));
        assert_eq!(mode(c"/"), Ok(mode(c"/proc/..").expect("a folder")), "others go to the kernel");
        assert_eq!(open("/dev/vfio/5557").err(), Some(libc::ENOENT));
        // SAFETY: C strings.
        let file =
            unsafe { libc::fopen(c"/sys/bus/pci/devices/0000:01:00.0/vendor".as_ptr(), c"r".as_ptr()) };
        assert!(!file.is_null());
        let mut line = [0; 16];
        // SAFETY: an open file and room for a line.
        unsafe { libc::fgets(line.as_mut_ptr(), 16, file) };
        // SAFETY: `fgets` ends the line with NUL.
        assert_eq!(unsafe { CStr::from_ptr(line.as_ptr()) }, c"0x15b3\n");
    });
}

fn mode(path: &CStr) -> Result<libc::mode_t, c_int> {
    // SAFETY: all-zero bytes are a valid stat.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a C string, and a stat to write.
    let result = unsafe { libc::stat(path.as_ptr(), &mut stat) };
    if result < 0 { Err(errno()) } else { Ok(stat.st_mode) }
}

#[test]
fn wrong_options_are_said() {
    let said = on_card("open::wrong_options_are_said", "prots=2", || {
        assert_eq!(open("/dev/vfio/vfio").err(), Some(libc::ENODEV));
    });
    assert!(is_inside() || said.contains("model option `prots` is unknown"), "{said}");
}
