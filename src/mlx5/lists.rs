//! What is declared here: the table test, the printer and the notes walk these lists.

use super::{
    caps::*,
    cmd::*,
    context::*,
    eqe::*,
    init_segment::*,
    layout::{Desc, Layout},
    record::*,
    uar::*,
};

macro_rules! descs {
    ($($ty:ident)*) => { &[$(<$ty as Layout>::DESC),*] };
}

macro_rules! tables {
    ($($ty:ident)*) => { &[$($ty::TABLE),*] };
}

/// Every structure of [`mlx5`](super), the data path's being in lists of their own.
pub fn layouts() -> &'static [&'static Desc] {
    descs![
        InitSeg FwRev CmdifRevFwSub CmdqAddrLSz Initializing FwTimeout HealthBuffer
        CqDoorbell EqDoorbell
        DbrecQp DbrecRq DbrecSq DbrecCq CqArm
        Eqe EqeComp EqeCmd EqePageReq EqeCqErr EqeQpSrq EqeXrqErr EqeDct EqePortState
        EqePageFaultWqe EqePageFaultRdma EqeVportChange EqePortModule EqeTempWarning EqeCongestion
        Ads
        Cqc
        Dctc
        Eqc
        Mkc
        Qpc QpcExt
        RoceAddrLayout
        NicVportContext MacAddressLayout HcaVportContext Pkey
        PerProtocolNetworkingOffloadCaps
        FlowTableNicCap FlowTablePropLayout
        CmdHcaCap
        CmdHcaCap2
        DeviceMemCap QosCap
        RoceCap AtomicCaps OdpCap OdpPerTransportServiceCap
        AllocPdIn AllocPdOut DeallocPdIn DeallocPdOut AllocUarIn AllocUarOut DeallocUarIn
        DeallocUarOut AllocTransportDomainIn AllocTransportDomainOut DeallocTransportDomainIn
        DeallocTransportDomainOut AllocXrcdIn AllocXrcdOut DeallocXrcdIn DeallocXrcdOut
        QueryHcaCapIn QueryHcaCapOut SetHcaCapIn SetHcaCapOut
        CreateCqIn CreateCqOut QueryCqIn QueryCqOut ModifyCqIn ModifyCqOut DestroyCqIn DestroyCqOut
        CreateDctIn CreateDctOut DrainDctIn DrainDctOut DestroyDctIn DestroyDctOut QueryDctIn QueryDctOut
        ArmDctIn ArmDctOut
        CreateEqIn CreateEqOut QueryEqIn QueryEqOut DestroyEqIn DestroyEqOut
        CmdEntry MailboxBlock MailboxTrailer
        EnableHcaIn EnableHcaOut DisableHcaIn DisableHcaOut InitHcaIn InitHcaOut TeardownHcaIn
        TeardownHcaOut SetDriverVersionIn SetDriverVersionOut QueryAdapterIn QueryAdapterOut NopIn
        NopOut QueryAdapterParamBlock
        QueryIssiIn QueryIssiOut SetIssiIn SetIssiOut
        CreateMkeyIn CreateMkeyOut QueryMkeyIn QueryMkeyOut DestroyMkeyIn DestroyMkeyOut
        QuerySpecialContextsIn QuerySpecialContextsOut
        Umem CreateUmemIn CreateUmemOut DestroyUmemIn DestroyUmemOut
        Uctx CreateUctxIn CreateUctxOut DestroyUctxIn DestroyUctxOut
        MboxIn MboxOut
        QueryPagesIn QueryPagesOut ManagePagesIn ManagePagesOut
        CreateQpIn CreateQpOut QueryQpIn QueryQpOut DestroyQpIn DestroyQpOut AllocQCounterIn
        AllocQCounterOut DeallocQCounterIn DeallocQCounterOut QueryQCounterIn QueryQCounterOut
        Rst2initQpIn Rst2initQpOut Init2initQpIn Init2initQpOut Init2rtrQpIn Init2rtrQpOut
        Rtr2rtsQpIn Rtr2rtsQpOut Rts2rtsQpIn Rts2rtsQpOut Sqerr2rtsQpIn Sqerr2rtsQpOut Qp2errIn
        Qp2errOut Qp2rstIn Qp2rstOut
        AccessRegisterIn AccessRegisterOut RegisterHostEndianness NodeDescriptionReg PaosReg PmtuReg
        PtysReg PcapReg PpcntReg
        Eth8023CntrsGrp Eth2863CntrsGrp Eth2819CntrsGrp Eth3635CntrsGrp EthExtendedCntrsGrp
        EthPerPrioGrp EthPerTcPrioGrp EthPerTcCongestPrioGrp
        PhysLayerCntrs PhysLayerStatisticalCntrs IbPortCntrsGrp MpcntReg PciePerfCntrsGrp
        PfccReg PvlcReg PcmrReg PplmReg PmlpReg MciaReg
        PcamReg PcamEnhancedFeatures McamReg McamEnhancedFeatures
        SetRoceAddressIn SetRoceAddressOut QueryRoceAddressIn QueryRoceAddressOut
        QueryNicVportContextIn QueryNicVportContextOut ModifyNicVportContextIn
        ModifyNicVportContextOut QueryVportStateIn QueryVportStateOut ModifyVportStateIn
        ModifyVportStateOut QueryHcaVportContextIn QueryHcaVportContextOut QueryHcaVportGidIn
        QueryHcaVportGidOut QueryHcaVportPkeyIn QueryHcaVportPkeyOut ModifyNicVportFieldSelect
        Wq
        Rqc Rmpc
        Sqc
        Tirc Tisc Rqtc RxHashFieldSelect
        XrcSrqc
        Xrqc TagMatchingTopologyContext
        FlowTableContext FlowContext Vlan DestFormatStruct
        FteMatchParam FteMatchSetLyr24 FteMatchSetMisc
        CreateFlowTableIn CreateFlowTableOut DestroyFlowTableIn DestroyFlowTableOut
        ModifyFlowTableIn ModifyFlowTableOut SetFlowTableRootIn SetFlowTableRootOut
        CreateFlowGroupIn CreateFlowGroupOut DestroyFlowGroupIn DestroyFlowGroupOut SetFteIn
        SetFteOut DeleteFteIn DeleteFteOut
        AllocFlowCounterIn AllocFlowCounterOut DeallocFlowCounterIn DeallocFlowCounterOut
        QueryFlowCounterIn QueryFlowCounterOut
        CreateTirIn CreateTirOut ModifyTirIn ModifyTirOut DestroyTirIn DestroyTirOut CreateTisIn
        CreateTisOut ModifyTisIn ModifyTisOut QueryTisIn QueryTisOut DestroyTisIn DestroyTisOut CreateRqtIn CreateRqtOut
        ModifyRqtIn ModifyRqtOut DestroyRqtIn DestroyRqtOut ModifyTirBitmask ModifyTisBitmask
        RqtBitmask
        CreateSqIn CreateSqOut ModifySqIn ModifySqOut QuerySqIn QuerySqOut DestroySqIn DestroySqOut
        CreateRqIn CreateRqOut ModifyRqIn ModifyRqOut QueryRqIn QueryRqOut DestroyRqIn DestroyRqOut
        CreateRmpIn CreateRmpOut QueryRmpIn QueryRmpOut DestroyRmpIn DestroyRmpOut CreateXrcSrqIn
        CreateXrcSrqOut QueryXrcSrqIn QueryXrcSrqOut DestroyXrcSrqIn DestroyXrcSrqOut ArmXrcSrqIn
        ArmXrcSrqOut ModifyRmpIn ModifyRmpOut RmpBitmask
        SchedulingContext TsarElement SchedElem CreateSchedulingElementIn CreateSchedulingElementOut
        QuerySchedulingElementIn QuerySchedulingElementOut ModifySchedulingElementIn ModifySchedulingElementOut
        DestroySchedulingElementIn DestroySchedulingElementOut
        CreateXrqIn CreateXrqOut QueryXrqIn QueryXrqOut DestroyXrqIn DestroyXrqOut ArmXrqIn ArmXrqOut ArmRqIn ArmRqOut
        AllocMemicIn AllocMemicOut DeallocMemicIn DeallocMemicOut ModifyMemicIn ModifyMemicOut
        CreatePsvIn CreatePsvOut DestroyPsvIn DestroyPsvOut
        PageFaultResumeIn PageFaultResumeOut
        SetPpRateLimitContext SetPpRateLimitIn SetPpRateLimitOut
        CreateGeneralObjectIn CreateGeneralObjectOut ModifyGeneralObjectIn ModifyGeneralObjectOut DestroyGeneralObjectIn DestroyGeneralObjectOut
        AvQpMapping UdAv
        AttachToMcgIn AttachToMcgOut DetachFromMcgIn DetachFromMcgOut
        MadIfcIn MadIfcOut
        QueryVportCounterIn QueryVportCounterOut TrafficCounter QueryVnicEnvIn QueryVnicEnvOut
        VnicDiagnosticStatistics
    ]
}

/// Every enumeration: name of the table, and the named values.
pub fn enums() -> &'static [EnumTable] {
    tables![
        NicInterface HealthSyndrome
        EventType PortChange EventQueueType CqErrorSyndrome PageFaultSubType PageFaultType PortModuleStatus PortModuleError
        CqStatus CqState CqeSize MiniCqeFormat CqPeriodMode
        DctState
        EqStatus EqState
        MkcAccessMode
        QpState ServiceType PmState Mtu RqType AtomicMode ScatterToCqe
        RoceVersion RoceL3Type
        InlineMode NicVportListType
        CapType
        DeliveryStatus
        TeardownProfile
        CmdStatus
        CmdOpcode GeneralObjectType SchedulingHierarchy SchedulingElementType TsarType
        QueryPagesOpMod ManagePagesOpMod
        AccessRegOpMod RegisterId PaosStatus PpcntGroup
        VportState VportAdminState
        ModifyMemicOpMod MemicOperation
        ModifyCqOpMod CqFieldSelect CqResizeSelect QpOptParam
        XrqState XrqTopology XrqOffload
        WqType FlowDestination FlowAction FlowTableType
    ]
}

/// Name of an enumeration's table, and its named values.
pub type EnumTable = (&'static str, &'static [(&'static str, u64)]);

/// Every command.
pub fn commands() -> &'static [CommandDesc] {
    macro_rules! commands {
        ($($ty:ident)*) => { &[$(CommandDesc {
            opcode: <$ty as Command>::OPCODE,
            input: <$ty as Layout>::DESC,
            output: <<$ty as Command>::Out as Layout>::DESC,
        }),*] };
    }
    commands![
        AllocPdIn DeallocPdIn AllocUarIn DeallocUarIn AllocTransportDomainIn
        DeallocTransportDomainIn AllocXrcdIn DeallocXrcdIn
        QueryHcaCapIn SetHcaCapIn
        CreateCqIn QueryCqIn ModifyCqIn DestroyCqIn
        CreateGeneralObjectIn ModifyGeneralObjectIn DestroyGeneralObjectIn
        CreateSchedulingElementIn QuerySchedulingElementIn ModifySchedulingElementIn DestroySchedulingElementIn
        CreateDctIn DrainDctIn DestroyDctIn QueryDctIn ArmDctIn
        CreateEqIn QueryEqIn DestroyEqIn
        EnableHcaIn DisableHcaIn InitHcaIn TeardownHcaIn SetDriverVersionIn QueryAdapterIn NopIn
        QueryIssiIn SetIssiIn
        CreateMkeyIn QueryMkeyIn DestroyMkeyIn QuerySpecialContextsIn
        CreateUmemIn DestroyUmemIn CreateUctxIn DestroyUctxIn
        QueryPagesIn ManagePagesIn
        CreateQpIn QueryQpIn DestroyQpIn AllocQCounterIn DeallocQCounterIn QueryQCounterIn
        Rst2initQpIn Init2initQpIn Init2rtrQpIn Rtr2rtsQpIn Rts2rtsQpIn Sqerr2rtsQpIn Qp2errIn Qp2rstIn
        AccessRegisterIn
        SetRoceAddressIn QueryRoceAddressIn
        QueryNicVportContextIn ModifyNicVportContextIn QueryVportStateIn ModifyVportStateIn
        QueryHcaVportContextIn QueryHcaVportGidIn QueryHcaVportPkeyIn
        CreateFlowTableIn DestroyFlowTableIn ModifyFlowTableIn SetFlowTableRootIn CreateFlowGroupIn
        DestroyFlowGroupIn SetFteIn DeleteFteIn
        AllocFlowCounterIn DeallocFlowCounterIn QueryFlowCounterIn
        CreateTirIn ModifyTirIn DestroyTirIn CreateTisIn ModifyTisIn QueryTisIn DestroyTisIn CreateRqtIn
        ModifyRqtIn DestroyRqtIn
        CreateSqIn ModifySqIn QuerySqIn DestroySqIn
        CreateRqIn ModifyRqIn QueryRqIn DestroyRqIn CreateRmpIn QueryRmpIn DestroyRmpIn
        ModifyRmpIn CreateXrcSrqIn QueryXrcSrqIn ArmXrcSrqIn DestroyXrcSrqIn
        CreateXrqIn QueryXrqIn DestroyXrqIn ArmXrqIn ArmRqIn
        AllocMemicIn DeallocMemicIn ModifyMemicIn
        CreatePsvIn DestroyPsvIn
        PageFaultResumeIn
        SetPpRateLimitIn
        AttachToMcgIn DetachFromMcgIn
        MadIfcIn
        QueryVportCounterIn QueryVnicEnvIn
    ]
}
